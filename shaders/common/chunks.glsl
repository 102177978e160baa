// Kernels over a table of chunks (shaders/params.h): one dispatch updates parameters that lie anywhere.

struct Chunk {
  uint begin;  // first element in the parameters and their states
  uint grad;   // first element in the gradients' range
  uint size, number;
};

Chunk load_chunk(uint row) {
  uint i = CHUNK_ROW * row;
  return Chunk(uint(load_table(i)), uint(load_table(i + 1)), uint(load_table(i + 2)),
               uint(load_table(i + 3)));
}
