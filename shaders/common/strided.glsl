// Positions in a view of up to REWIND_MAX_DIMS dimensions. A kernel walks p.shape from the last
// dimension to the first, adding coordinate * stride for each of its views:
//   for (uint d = p.rank, rest = i; d-- > 0;) x += next_coordinate(rest, d) * p.x_stride[d];

// Returns the coordinate in dimension d; `rest` becomes the linear index over the dimensions before it.
uint next_coordinate(inout uint rest, uint d) {
  uint quotient = rest / p.shape[d];
  uint coordinate = rest - quotient * p.shape[d];
  rest = quotient;
  return coordinate;
}
