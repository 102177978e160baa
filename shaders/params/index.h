// Indexing, sorting and scans.

// flat_index: where the rows lie that `index` names along the middle axis of [outer, rows, inner]:
// y[o, k, i] = (o * rows + index[o, k, i]) * inner + i, -1 where the index is outside [0, rows).
// variant {SHARED}; SHARED 1: index [count] for every o, inner 1. threads.x = n, y's elements.
struct FlatIndexParams {
  uint offset[2];  // index, y
  uint n, count, inner, rows;
};
// sort_blocks: x [lines, count] -> keys that order as unsigned numbers like its values (NaN last,
// -0 as 0; descending 1: the other way round) and `order`, the places that they come from, each
// block of 32 places of a line sorted, equal ones in their order. threads.x = lines * count.
struct SortBlocksParams {
  uint offset[3];  // x, key, order
  uint n, count, descending;
};
// sort_merge: merges neighbouring runs of `run` places, each sorted: those in the first run come
// first among equals. threads.x = n = lines * count.
struct SortMergeParams {
  uint offset[4];  // key, order, merged key, merged order
  uint n, count, run;
};
// sorted_lasts: from a stable sort of an index, which of its places are the last of their value:
// last[order[i]] = 1 where key[i + 1] is another one, else 0. threads.x = n.
struct SortedLastsParams {
  uint offset[3];  // key, order, last
  uint n;
};
// gather: y[i, :] = table[index[i], :]; rows of NaN (integers: -1) where the index is outside [0,
// rows).
// threads.x = ceil(n * width / 8).
struct GatherParams {
  uint offset[3];  // table, index, y
  uint n, width, rows;
};
// scatter_add: y[r, :] += x[order[i], :] for all places i of a stable sort of an index with key[i]
// = r ^ flip, in their order; a row outside [0, rows) adds nothing. Each chunk of SCATTER_CHUNK
// places sums for itself: a run of equal keys that lies in it goes to y, what goes on in the next
// chunk or began in an earlier one to `open` [2 * chunks, width] with its key: the first run to row
// 2 * chunk, the last one to the row after it (0 where they are one run that goes on). Rows that
// are not used are not written, and have the key SCATTER_NO_KEY. The same call on these sums them.
// variant {IN_ORDER}: 1: order is not read, order[i] = i. threads.x = chunks * ceil(width / 8).
#define SCATTER_CHUNK 32
#define SCATTER_NO_KEY 0xffffffffu
struct ScatterAddParams {
  uint offset[6];  // x, key, order, y, open, open_key
  uint n, width, rows;
  uint flip;  // 2^31 for the keys of sort_blocks
};
// scatter_put: y[index[i], :] = dy[i, :] where last[i] is 1; an index outside [0, rows) puts
// nothing. variant {UNIQUE}: 1: no index occurs twice, last is not read.
// threads.x = ceil(n * width / 8).
struct ScatterPutParams {
  uint offset[4];  // dy, index, last, y
  uint n, width, rows;
};
