#include "data/speech/speech_loader.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/speech/audio.h"

namespace rw {

namespace {

BucketOrder order_of(const SpeechDataset& data, const BucketOrderOptions& options) {
  std::vector<uint64_t> lengths;
  for (const Utterance& u : data.utterances) lengths.push_back(static_cast<uint64_t>(u.samples));
  return {"SpeechLoader", std::move(lengths), options};
}

std::vector<std::vector<int32_t>> labels_of(const SpeechDataset& data, const SpeechUnits& units) {
  std::vector<std::vector<int32_t>> labels;
  for (const Utterance& u : data.utterances) try {
      labels.push_back(units.encode(u.text));
    } catch (const ValueError& error) {
      fail<FileError>("SpeechLoader", "the transcript of '{}' must be of known units, got: {}",
                      u.file.string(), error.what());
    }
  return labels;
}

}  // namespace

SpeechLoader::SpeechLoader(const SpeechDataset& data, const SpeechUnits& units,
                           SpeechLoaderOptions options)
    : data_(data),
      options_(options),
      labels_(labels_of(data, units)),
      order_(order_of(data, options.order)) {
  check(options_.window > 0 && options_.hop > 0 && options_.subsampling > 0 &&
            options_.length_multiple > 0,
        "SpeechLoader",
        "window, hop, subsampling and length_multiple must be positive, got {}, {}, {} and {}",
        options_.window, options_.hop, options_.subsampling, options_.length_multiple);
  for (size_t i = 0; i < data.size(); ++i) {
    check_utterance(i);
    width_ = std::max(width_, static_cast<int64_t>(labels_[i].size()));
  }
}

int64_t SpeechLoader::frames_of(const Utterance& utterance) const {
  return utterance.samples < options_.window
             ? 0
             : (utterance.samples - options_.window) / options_.hop + 1;
}

void SpeechLoader::check_utterance(size_t i) const {
  const std::vector<int32_t>& labels = labels_[i];
  const std::string file = data_.utterances[i].file.string();
  const int64_t frames = frames_of(data_.utterances[i]);
  check<FileError>(frames > 0, "SpeechLoader",
                   "'{}' must be of {} samples or more, one window, got {}", file, options_.window,
                   data_.utterances[i].samples);
  check<FileError>(!labels.empty(), "SpeechLoader", "'{}' must have a transcript, got an empty one",
                   file);
  if (!options_.repeats_need_frames) return;
  const int64_t outputs = (frames + options_.subsampling - 1) / options_.subsampling;
  auto needed = static_cast<int64_t>(labels.size());
  for (size_t k = 1; k < labels.size(); ++k) needed += labels[k] == labels[k - 1];
  check<FileError>(needed <= outputs, "SpeechLoader",
                   "'{}' must be as long as its transcript needs, got {} outputs of {} frames for "
                   "{} labels, of which repetitions need one between; leave it out",
                   file, outputs, options_.subsampling, labels.size());
}

SpeechBatch SpeechLoader::shape(int64_t epoch, int64_t index) {
  const auto chosen = order_.batch(epoch, index);
  SpeechBatch batch{.rows = static_cast<int64_t>(chosen.size()),
                    .width = width_,
                    .utterances = {chosen.begin(), chosen.end()}};
  for (const uint32_t i : chosen)
    batch.length = std::max(batch.length, frames_of(data_.utterances[i]));
  const int64_t multiple = options_.length_multiple;
  batch.length = (batch.length + multiple - 1) / multiple * multiple;
  return batch;
}

SpeechBatch SpeechLoader::batch(int64_t epoch, int64_t index) {
  SpeechBatch batch = shape(epoch, index);
  const auto rows = static_cast<size_t>(batch.rows), width = static_cast<size_t>(width_);
  const auto length = static_cast<size_t>(options_.hop * (batch.length - 1) + options_.window);
  batch.samples.assign(rows * length, 0);
  batch.labels.assign(rows * width, 0);
  for (size_t row = 0; row < rows; ++row) {
    const size_t i = batch.utterances[row];
    const Utterance& utterance = data_.utterances[i];
    const Audio audio = read_audio(utterance.file);
    check<FileError>(static_cast<int64_t>(audio.samples.size()) == utterance.samples,
                     "SpeechLoader", "'{}' must be as it was listed, of {} samples, got {}",
                     utterance.file.string(), utterance.samples, audio.samples.size());
    // Samples behind the last whole frame may not fit.
    std::copy_n(audio.samples.begin(), std::min(audio.samples.size(), length),
                batch.samples.begin() + static_cast<ptrdiff_t>(row * length));
    std::ranges::copy(labels_[i], batch.labels.begin() + static_cast<ptrdiff_t>(row * width));
    batch.frames.push_back(static_cast<int32_t>(frames_of(utterance)));
    batch.label_counts.push_back(static_cast<int32_t>(labels_[i].size()));
  }
  return batch;
}

}  // namespace rw
