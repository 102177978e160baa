// Kernels over a table of chunks (shaders/params.h): what lies anywhere is updated by one dispatch.

struct Chunk {
  uint begin;  // in the parameters and their state
  uint grad;   // in the gradients' range
  uint size, parameter;
};

Chunk load_chunk(uint row) {
  uint i = CHUNK_ROW * row;
  return Chunk(uint(load_table(i)), uint(load_table(i + 1)), uint(load_table(i + 2)),
               uint(load_table(i + 3)));
}
