// CIFAR-10 in its official binary format: records of a label byte and 32x32 red, green and blue
// planes, in data_batch_1.bin to data_batch_5.bin and test_batch.bin.
#pragma once

#include <filesystem>
#include <string>

#include "../base/dataset.h"

namespace rw {

// Whether the folder (or its cifar-10-batches-bin) holds one of these files.
bool is_cifar10(const std::filesystem::path& directory);

// Reads the batches of `directory` (or its cifar-10-batches-bin); for training, as many as exist.
// Throws FileError with the file and its fault.
ImageDataset load_cifar10(const std::filesystem::path& directory, Split split);

// Writes all images as one batch, and the class names to batches.meta.txt.
void save_cifar10(const std::filesystem::path& directory, Split split, const ImageDataset& data);

}  // namespace rw
