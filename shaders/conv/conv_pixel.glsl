// The pixels of a convolution, numbered through all images (ConvTileParams).

// Returns n / d for n < 2^31, without dividing: `over` is 2^32 (2^shift - d) / d + 1, rounded down, and `shift` the
// least with 2^shift >= d (Granlund, Montgomery: Division by invariant integers using multiplication).
uint divide(uint n, uint over, uint shift) {
  uint high, low;
  umulExtended(n, over, high, low);
  return (high + n) >> shift;
}

struct Pixel {
  uint image, i, j;
};

Pixel pixel_at(uint number) {
  const uint line = divide(number, p.over_w, p.over_shifts & 0xffffu);
  const uint image = divide(line, p.over_h, p.over_shifts >> 16);
  return Pixel(image, line - image * p.rows_h, number - line * p.rows_w);
}
