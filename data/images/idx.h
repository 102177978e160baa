// MNIST's IDX files, plain or gzip: big-endian header {0, 0, type, rank, sizes...}, then bytes.
#pragma once

#include <filesystem>

#include "../base/dataset.h"

namespace rw {

// An IDX array of unsigned bytes: its shape (1 to 4 axes), and its values in row-major order.
struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
};
// Throws FileError if the header or the length is wrong.
IdxArray load_idx(const std::filesystem::path& file);
// Writes it without compression. The number of values must be that of the shape, which is not
// checked. Throws FileError.
void save_idx(const std::filesystem::path& file, const IdxArray& array);

// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] of `directory`. Throws FileError with the
// file or folder and its fault.
ImageDataset load_mnist(const std::filesystem::path& directory, Split split);
// Writes both files without compression. ValueError unless there is one channel.
void save_mnist(const std::filesystem::path& directory, Split split, const ImageDataset& data);

}  // namespace rw
