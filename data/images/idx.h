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
// Throws FileError when the header or the length is wrong.
IdxArray load_idx(const std::filesystem::path& file);
// Writes it plain. As many values as the shape has are expected and not checked. Throws FileError.
void save_idx(const std::filesystem::path& file, const IdxArray& array);

// {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] of `directory`. Throws FileError naming the
// file or folder and what is wrong with it.
ImageDataset load_mnist(const std::filesystem::path& directory, Split split);
// Writes both files, plain. ValueError unless there is one channel.
void save_mnist(const std::filesystem::path& directory, Split split, const ImageDataset& data);

}  // namespace rw
