#include "nn/adapters/frozen_weights.h"

#include <algorithm>

namespace rw {

namespace {

StreamOptions within(uint64_t most_bytes) {
  return {.most_bytes = most_bytes ? most_bytes : usual_streamed_bytes};
}

}  // namespace

FrozenWeights::FrozenWeights(const Module& model, uint64_t most_bytes) {
  std::vector<std::shared_ptr<Storage>> storages;
  const auto add = [&](const Tensor& weight) {
    const std::shared_ptr<Storage>& storage = weight.impl().storage;
    if (storage->bytes() < least_streamed_bytes || storage->keeper() ||
        std::ranges::find(storages, storage) != storages.end())
      return;
    bytes_ += storage->bytes();
    storages.push_back(storage);
  };
  for (const Tensor& parameter : model.parameters())
    if (!parameter.requires_grad()) add(parameter);
  for (const auto& [name, buffer] : model.named_buffers()) add(buffer);
  source_ = std::make_unique<HostSource>(storages);
  stream_ = std::make_unique<Stream>(std::move(storages), *source_, within(most_bytes));
}

FrozenWeights::FrozenWeights(const std::vector<WeightInFile>& weights, uint64_t most_bytes) {
  std::vector<std::shared_ptr<Storage>> storages;
  std::vector<FileContents> contents;
  for (const WeightInFile& one : weights) {
    bytes_ += one.contents.bytes();
    storages.push_back(one.weight.impl().storage);
    contents.push_back(one.contents);
  }
  auto file = std::make_unique<FileSource>(storages, std::move(contents));
  file_ = file.get();
  source_ = std::move(file);
  stream_ = std::make_unique<Stream>(std::move(storages), *source_, within(most_bytes));
}

void FrozenWeights::begin_step() {
  stream_->end_window();
}

}  // namespace rw
