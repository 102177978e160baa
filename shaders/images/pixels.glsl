// Elements of images [batch, height, width, channels], of sizes in_h, in_w and out_h, out_w.

struct Position {
  uint image, h, w, c;
};

// Returns the position of element i of [batch, height, width, channels].
Position position(uint i, uint height, uint width) {
  uint pixel = i / p.channels, row = pixel / width, image = row / height;
  return Position(image, row - image * height, pixel - row * width, i - pixel * p.channels);
}

uint input_at(Position at, uint h, uint w) {
  return ((at.image * p.in_h + h) * p.in_w + w) * p.channels + at.c;
}
uint output_at(Position at, uint h, uint w) {
  return ((at.image * p.out_h + h) * p.out_w + w) * p.channels + at.c;
}
