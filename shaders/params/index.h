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
// sorted_links: index_links from a stable sort of the index: places of equal keys follow each
// other. threads.x = n.
struct SortedLinksParams {
  uint offset[4];  // key, order, next, first
  uint n;
};
// gather: y[i, :] = table[index[i], :]; rows of NaN (integers: -1) where the index is outside [0,
// rows).
// threads.x = ceil(n * width / 8).
struct GatherParams {
  uint offset[3];  // table, index, y
  uint n, width, rows;
};
// index_links: next[i] = smallest j > i with index[j] == index[i], else -1; first[i] = 1 when no
// j < i has it. threads.x = n <= 2^19.
struct IndexLinksParams {
  uint offset[3];  // index, next, first
  uint n;
};
// scatter_add: y[index[i], :] += dy[i, :] in the order of i (walks the links); an index outside
// [0, rows) adds nothing. No index occurs over 2^17 times. variant {MODE}: 0 adds; 1: the last row
// of an index replaces; 2: the same where no index occurs twice, the links are not read.
// threads.x = ceil(n * width / 8).
struct ScatterAddParams {
  uint offset[5];  // dy, index, next, first, y
  uint n, width, rows;
};
