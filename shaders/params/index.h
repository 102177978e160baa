// Indexing, sorting and scans.

// flat_index: where the rows lie that `index` names along the middle axis of [outer, rows, inner]:
// y[o, k, i] = (o * rows + index[o, k, i]) * inner + i, or -1 if the index is outside [0, rows).
// The variant is {SHARED}; with 1, one index [count] serves every o, and inner is 1. threads.x = n,
// the elements of y.
struct FlatIndexParams {
  uint offset[2];  // index, y
  uint n, count, inner, rows;
};
// sort_blocks: x [lines, count] -> `key`, unsigned numbers with the order of its values (NaN last,
// -0 as 0; the reverse order with descending 1), and `order`, the places that they come from. Each
// block of 32 places of a line is sorted, and equal keys keep their order. threads.x = lines *
// count.
//
// sort_merge: merges neighbouring runs of `run` places, each of which is sorted. Among equal keys
// those of the first run come first. threads.x = n = lines * count.
//
// sorted_lasts: marks, from a stable sort of an index, the last place of each value: last[order[i]]
// = 1 if key[i + 1] differs from key[i], otherwise 0. threads.x = n.
struct SortParams {
  // blocks: x, key, order; merge: key, order, merged key, merged order; lasts: key, order, last
  uint offset[4];
  uint n;
  uint count;       // not of sorted_lasts
  uint run;         // of sort_merge
  uint descending;  // of sort_blocks
};
// gather: y[i, :] = table[index[i], :]; rows of NaN (integers: -1) where the index is outside [0,
// rows).
// threads.x = ceil(n * width / 8).
//
// scatter_add: y[r, :] += x[order[i], :] for all places i of a stable sort of an index with key[i]
// = r ^ flip, in their order. A row outside [0, rows) adds nothing.
//
// Each chunk of SCATTER_CHUNK places is summed separately. A run of equal keys within one chunk is
// added to y. A run that continues in the next chunk or began in an earlier one goes to `open` [2 *
// chunks, width] with its key: the first run of a chunk to row 2 * chunk, the last one to the row
// after it (the former if they are one run that continues). Unused rows are not written and have
// the key SCATTER_NO_KEY. The same call on `open` and its keys then adds these sums.
//
// The variant is {IN_ORDER}; with 1, order[i] = i and order is not read. threads.x = chunks *
// ceil(width / 8).
#define SCATTER_CHUNK 32
#define SCATTER_NO_KEY 0xffffffffu
//
// scatter_put: y[index[i], :] = dy[i, :] where last[i] is 1; an index outside [0, rows) puts
// nothing. variant {UNIQUE}: 1: no index occurs twice, last is not read.
// threads.x = ceil(n * width / 8).
struct RowsParams {
  // gather: table, index, y; scatter_add: x, key, order, y, open, open_key; scatter_put: dy, index,
  // last, y
  uint offset[6];
  uint n, width, rows;
  uint flip;  // of scatter_add: 2^31 for the keys of sort_blocks
};
