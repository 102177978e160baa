// MNIST's IDX files, plain or gzip: big-endian header {0, 0, type, rank, sizes...}, then bytes.
#pragma once

#include <filesystem>

#include "rewind/data/dataset.h"

namespace rw {

// An IDX array of unsigned bytes.
struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
};
// Throws FileError when the header or the length is wrong.
IdxArray load_idx(const std::filesystem::path& file);
void save_idx(const std::filesystem::path& file, const IdxArray& array);

// {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] of `directory`.
ImageDataset load_mnist(const std::filesystem::path& directory, Split split);
void save_mnist(const std::filesystem::path& directory, Split split, const ImageDataset& data);

}  // namespace rw
