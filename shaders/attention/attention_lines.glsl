// The places of a workgroup's tiles of attention: pieces of PIECE elements of its operands' rows, and its ROWS rows and
// RESULTS * 64 columns of the result. Rows of a matrix in a buffer: row i begins at element `first` + min(i, last) *
// step.
struct Rows {
  uint first, step, last;
};

Rows query_rows(Work w) { return Rows(at(w, p.q_stride), p.q_stride[2], p.queries - 1); }
Rows key_rows(Work w, uint end) { return Rows(shared_at(w, p.k_stride), p.k_stride[2], end - 1); }
Rows value_rows(Work w, uint end) { return Rows(shared_at(w, p.v_stride), p.v_stride[2], end - 1); }
// The queries of dense [batch, queries, heads, dim].
Rows gradient_rows(Work w) {
  return Rows((w.batch * p.queries * p.heads + w.head) * DIM, p.heads * DIM, p.queries - 1);
}

// Returns where a piece begins. All pieces lie inside the matrix; parts that should be outside are not used.
uint place(Rows rows, uint row, uint column) {
  return rows.first + min(row, rows.last) * rows.step + min(column, DIM - PIECE);
}

// Finds the workgroup's part of a result of `heads` heads.
Work find_work(uint rows, uint heads) {
  const uint row_tiles = (rows + ROWS - 1) / ROWS;
  const uint column_tiles = (DIM + RESULTS * 64 - 1) / (RESULTS * 64);
  const uint z = group_id() / row_tiles, head = z / column_tiles;
  return Work(head / heads, head % heads, group_id() % row_tiles * ROWS,
              z % column_tiles * RESULTS * 64, head < p.batch * heads);
}

#define FOR_RESULTS(r) [[unroll]] for (uint r = 0; r < RESULTS; ++r)
