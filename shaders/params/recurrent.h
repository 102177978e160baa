// Recurrent cells: one step.

// The variant is {whole}; with 1, hidden and all offsets are multiples of 4, and threads.x = rows *
// hidden / 4, otherwise rows * hidden.
//
// lstm_cell: a = gx + gh + bias [rows, 4 hidden]; i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of
// its quarters; c = f * c + i * g, in place; saved = c; h = o * tanh(c); acts = i, f, g, o.
//
// gru_cell: r, z = sigmoid(gx + gh + bias) of the first two thirds of [rows, 3 hidden]; with q = gh
// + bias and gx of the last third, n = tanh(gx + r * q); h = (1 - z) * n + z * h_prev; acts [rows,
// 4 hidden] = r, z, n, q.
//
// lstm_cell_grad: computes dgates, the gradient of gx and gh, from d = dy + dh and from dc, in
// place: the gradient of c becomes that of c_prev.
//
// gru_cell_grad: the same with carry in dc's place: d = dy + dh + carry, and carry becomes d * z,
// the part of h_prev's gradient that does not go through gh.
struct CellParams {
  // lstm_cell: gx, gh, bias, c, h, saved, acts; grad: acts, c_prev, c, dy, dh, dc, dgates.
  // gru_cell: gx, gh, bias, h_prev, h, acts; grad: acts, h_prev, dy, dh, carry, dgx, dgh.
  uint offset[7];
  uint rows, hidden;
};
