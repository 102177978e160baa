//! buffers: x:T:read y:U:write
//! types: T = f32 f16 i32 u8; U = f32 f16 i32 u8
//! params: CopyParams
//! reference: copy
//! local: 128
//! grid: groups
// A workgroup copies a tile of the last two dimensions, of which x is dense along the first and y along the second, by
// way of shared memory, so that lanes lie along the dense dimension of both.
#include "layout/convert.glsl"
#include "common/strided.glsl"
#define SIDE 32
#define LINES 4  // lines of the tile at a time

shared T_value tile[SIDE * (SIDE + 1)];

void main() {
  const uint d = p.rank - 2, rows = p.shape[d], columns = p.shape[d + 1];
  const uint column_tiles = (columns + SIDE - 1) / SIDE, row_tiles = (rows + SIDE - 1) / SIDE;
  uint rest = group_id() / column_tiles;
  const uint column = (group_id() - rest * column_tiles) * SIDE, tile_row = rest % row_tiles * SIDE;
  uint x = 0, y = 0;
  rest /= row_tiles;
  for (uint e = d; e-- > 0;) {
    const uint coordinate = next_coordinate(rest, e);
    x += coordinate * p.x_stride[e];
    y += coordinate * p.y_stride[e];
  }
  if (rest != 0) return;  // there are more groups than tiles

  const uint lane = gl_LocalInvocationID.x % SIDE, line = gl_LocalInvocationID.x / SIDE;
  T_value values[SIDE / LINES];
  const uint x_row = min(tile_row + lane, rows - 1);
  [[unroll]] for (uint u = 0; u < SIDE / LINES; ++u)
    values[u] = load_x(x + x_row + min(column + u * LINES + line, columns - 1) * p.x_stride[d + 1]);
  [[unroll]] for (uint u = 0; u < SIDE / LINES; ++u)
    tile[(u * LINES + line) * (SIDE + 1) + lane] = values[u];
  barrier();
  if (column + lane >= columns) return;
  [[unroll]] for (uint u = 0; u < SIDE / LINES; ++u) {
    const uint row = u * LINES + line;
    if (tile_row + row < rows)
      store_y(y + (tile_row + row) * p.y_stride[d] + column + lane,
              CONVERT(tile[lane * (SIDE + 1) + row]));
  }
}
