// The pixels of a convolution, numbered through all images (ConvTileParams).

// n / d for n < 2^31, without dividing: by[0] is 2^32 (2^by[1] - d) / d + 1, rounded down, and by[1] the
// least with 2^by[1] >= d (Granlund, Montgomery: Division by invariant integers using multiplication).
uint divide(uint n, uint by[2]) {
  uint high, low;
  umulExtended(n, by[0], high, low);
  return (high + n) >> by[1];
}

struct Pixel {
  uint image, i, j;
};

Pixel pixel_at(uint number) {
  const uint line = divide(number, p.over_w), image = divide(line, p.over_h);
  return Pixel(image, line - image * p.rows_h, number - line * p.rows_w);
}
