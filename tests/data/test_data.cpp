// Data sets: file formats with their errors, synthetic images, batches.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <zlib.h>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/content_hash.h"
#include "data/images/cifar.h"
#include "data/images/idx.h"
#include "data/images/loader.h"
#include "data/images/synthetic.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using test::contains;
using test::fault_of;
namespace fs = std::filesystem;

namespace {

// Returns 4x4 images whose pixels name their image and place.
ImageDataset numbered_images(int count) {
  ImageDataset data{4, 4, 1, 10, {}, {}, {}};
  for (int i = 0; i < count; ++i) {
    data.labels.push_back(i % 10);
    for (int p = 0; p < 16; ++p) data.pixels.push_back(static_cast<uint8_t>(i * 16 + p));
  }
  return data;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("data: a CIFAR-10 record is a label and three planes") {
  const TemporaryFolder folder;
  std::vector<uint8_t> record(3073);
  record[0] = 7;
  record[1 + 33] = 11;         // red of row 1, column 1
  record[1 + 1024 + 33] = 22;  // green
  record[1 + 2048 + 33] = 33;  // blue
  write_file(folder / "test_batch.bin", record);

  const ImageDataset data = load_cifar10(folder.path, Split::test);
  CHECK(data.labels == std::vector<int32_t>{7});
  REQUIRE(data.pixels.size() == 3072);
  CHECK(data.pixels[33 * 3] == 11);
  CHECK(data.pixels[33 * 3 + 1] == 22);
  CHECK(data.pixels[33 * 3 + 2] == 33);
}

TEST_CASE("data: CIFAR-10 survives a round trip and reads all training batches") {
  const TemporaryFolder folder;
  const ImageDataset shapes = draw_shapes(20, 3);
  save_cifar10(folder.path, Split::train, shapes);
  fs::copy_file(folder / "data_batch_1.bin", folder / "data_batch_3.bin");

  const ImageDataset data = load_cifar10(folder.path, Split::train);
  REQUIRE(data.size() == 40);
  CHECK(data.class_names == shapes.class_names);
  CHECK(std::equal(shapes.pixels.begin(), shapes.pixels.end(), data.pixels.begin()));
  CHECK(std::equal(shapes.labels.begin(), shapes.labels.end(), data.labels.begin() + 20));
}

TEST_CASE("data: wrong CIFAR-10 files are errors that say what is wrong") {
  const TemporaryFolder folder;
  const auto load = [&] { load_cifar10(folder.path, Split::test); };

  CHECK(contains(fault_of([&] { load_cifar10(folder / "absent", Split::test); }),
                 "absent is not a folder"));
  CHECK(contains(fault_of(load), "test_batch.bin"));
  CHECK(contains(fault_of([&] { load_cifar10(folder.path, Split::train); }), "data_batch_1.bin"));

  write_file(folder / "test_batch.bin", std::vector<uint8_t>(3073 + 3000));
  CHECK(contains(fault_of(load), "records of 3073 bytes, its size is 6073"));
  write_file(folder / "test_batch.bin", "");
  CHECK(contains(fault_of(load), "its size is 0"));
  std::vector<uint8_t> bad_label(2 * 3073);
  bad_label[3073] = 10;
  write_file(folder / "test_batch.bin", bad_label);
  CHECK(contains(fault_of(load), "label 10 in record 1"));
}

TEST_CASE("data: IDX round trip, plain and gzip") {
  const TemporaryFolder folder;
  const ImageDataset digits = draw_digits(12, 5);
  save_mnist(folder.path, Split::test, digits);
  SUBCASE("plain") {}
  SUBCASE("gzip") {
    for (const char* name : {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
      const std::vector<uint8_t> bytes = read_file(folder / name);
      const gzFile file = gzopen((folder / (std::string(name) + ".gz")).c_str(), "wb");
      gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
      gzclose(file);
      fs::remove(folder / name);
    }
  }
  const ImageDataset data = load_mnist(folder.path, Split::test);
  CHECK(data.height == 28);
  CHECK(data.width == 28);
  CHECK(data.pixels == digits.pixels);
  CHECK(data.labels == digits.labels);
}

TEST_CASE("data: wrong IDX files are errors that say what is wrong") {
  const TemporaryFolder folder;
  const fs::path file = folder / "array";
  const auto load = [&] { load_idx(file); };

  CHECK(contains(fault_of(load), "not there"));
  write_file(file, "garbage");
  CHECK(contains(fault_of(load), "not an IDX file"));
  write_file(file, std::vector<uint8_t>{0, 0, 8, 3, 0, 0});
  CHECK(contains(fault_of(load), "ends within its header"));
  write_file(file, std::vector<uint8_t>{0, 0, 8, 1, 0, 0, 0, 3, 1, 2});
  CHECK(contains(fault_of(load), "must have 3 bytes after its header, it has 2"));
  write_file(file, std::vector<uint8_t>{0, 0, 8, 2, 255, 255, 255, 255, 255, 255, 255, 255});
  CHECK(contains(fault_of(load), "bytes after its header, it has 0"));

  save_idx(folder / "t10k-images-idx3-ubyte", {{2, 1, 1}, {0, 0}});
  CHECK(contains(fault_of([&] { load_mnist(folder.path, Split::test); }), "labels-idx1"));
  save_idx(folder / "t10k-labels-idx1-ubyte", {{3}, {0, 0, 0}});
  CHECK(contains(fault_of([&] { load_mnist(folder.path, Split::test); }), "[2, 1, 1] and [3]"));

  const fs::path cut = folder / "cut.gz";
  const gzFile gz = gzopen(cut.c_str(), "wb");
  for (int i = 0; i < 50000; ++i) gzputc(gz, i % 251 * i % 251);
  gzclose(gz);
  fs::resize_file(cut, fs::file_size(cut) / 2);
  CHECK(contains(fault_of([&] { load_idx(cut); }), "damaged or cut short"));
}

TEST_CASE("data: files are replaced whole and leave nothing behind") {
  const TemporaryFolder folder;
  write_file(folder / "deep/report.json", "old, and longer");
  write_file(folder / "deep/report.json", "new");
  const std::vector<uint8_t> bytes = read_file(folder / "deep/report.json");
  CHECK(std::string(bytes.begin(), bytes.end()) == "new");
  CHECK(std::distance(fs::directory_iterator(folder / "deep"), {}) == 1);
  CHECK_THROWS_AS(write_file(folder / "deep/report.json/below", "x"), FileError);
}

TEST_CASE("data: synthetic images depend on the seed alone") {
  const ImageDataset a = draw_shapes(30, 1), b = draw_shapes(30, 1), other = draw_shapes(30, 2);
  CHECK(a.pixels == b.pixels);
  CHECK(a.pixels != other.pixels);
  CHECK(std::count(a.labels.begin(), a.labels.end(), 4) == 3);
  CHECK(draw_digits(10, 1).pixels == draw_digits(10, 1).pixels);
  CHECK(draw_digits(10, 1).pixels != draw_digits(10, 2).pixels);
}

TEST_CASE("data: synthetic files are made once") {
  const TemporaryFolder folder;
  const fs::path made = synthetic_cifar10(folder.path, {.train = 20, .test = 10});
  const auto time = fs::last_write_time(made / "data_batch_1.bin");
  CHECK(synthetic_cifar10(folder.path, {.train = 20, .test = 10}) == made);
  CHECK(fs::last_write_time(made / "data_batch_1.bin") == time);
  CHECK(load_cifar10(made, Split::train).size() == 20);
  CHECK(load_cifar10(made, Split::test).size() == 10);
  const fs::path digits = synthetic_mnist(folder.path, {.train = 20, .test = 10});
  CHECK(load_mnist(digits, Split::train).size() == 20);
  CHECK_THROWS_AS(synthetic_cifar10(folder.path, {.train = 0}), ValueError);
}

TEST_CASE("data: equal contents have equal hashes, and no others") {
  const ImageDataset images = numbered_images(12);
  std::vector<uint64_t> hashes = {content_hash(images)};
  CHECK(content_hash(numbered_images(12)) == hashes[0]);
  ImageDataset other = images;
  other.pixels[77] ^= 1;
  hashes.push_back(content_hash(other));
  other = images;
  std::swap(other.labels[3], other.labels[4]);
  hashes.push_back(content_hash(other));
  other = images;
  other.class_names = {"a", "bc"};
  hashes.push_back(content_hash(other));
  other.class_names = {"ab", "c"};
  hashes.push_back(content_hash(other));

  const std::vector<TextExample> texts = {{{1, 2, 3}, 2, 0}, {{4, 5}, 2, 1}};
  hashes.push_back(content_hash(texts));
  for (const std::vector<TextExample>& changed : std::vector<std::vector<TextExample>>{
           {{{1, 2, 3}, 2, 0}, {{4, 6}, 2, 1}},  // both have the same lengths
           {{{1, 2, 3}, 2, 0}, {{4, 5}, 1, 1}},
           {{{1, 2, 3}, 2, 0}, {{4, 5}, 2, 0}},
           {{{1, 2}, 2, 0}, {{3, 4, 5}, 2, 1}},
           {{{4, 5}, 2, 1}, {{1, 2, 3}, 2, 0}}})
    hashes.push_back(content_hash(changed));

  const TemporaryFolder folder;
  SpeechDataset speech;
  for (int i = 0; i < 20; ++i) {
    const fs::path file = folder / fmt::format("{}.wav", i).c_str();
    write_file(file, fmt::format("sound {:03}", i));
    speech.utterances.push_back({.file = file, .speaker = "s", .text = "one", .samples = 100});
  }
  hashes.push_back(content_hash(speech));
  speech.utterances[5].text = "two";
  hashes.push_back(content_hash(speech));
  speech.utterances[5].samples = 99;
  hashes.push_back(content_hash(speech));
  write_file(speech.utterances[7].file, "longer than before");
  hashes.push_back(content_hash(speech));
  write_file(speech.utterances[0].file, "sound abc");
  hashes.push_back(content_hash(speech));
  fs::remove(speech.utterances[9].file);
  CHECK_THROWS_AS(content_hash(speech), FileError);

  std::ranges::sort(hashes);
  CHECK(std::ranges::adjacent_find(hashes) == hashes.end());
  CHECK_THROWS_WITH_AS(content_hash(PhotoDataset{.files = {"a.png"}, .labels = {0}}),
                       doctest::Contains("check_photos() must have looked through all 1"),
                       ValueError);
}

TEST_CASE("loader: every image once per epoch, in an order of the seed and epoch") {
  const ImageDataset data = numbered_images(10);
  Loader loader(data, {.batch_size = 4, .shuffle = true, .seed = 9});
  REQUIRE(loader.batches() == 3);
  const auto epoch_labels = [](Loader& from, int64_t epoch) {
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < from.batches(); ++i) {
      const Batch batch = from.batch(epoch, i);
      CHECK(batch.pixels.size() == batch.labels.size() * 16);
      labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
    }
    return labels;
  };
  const auto first = epoch_labels(loader, 0), second = epoch_labels(loader, 1);
  CHECK(first != second);
  Loader again(data, {.batch_size = 4, .shuffle = true, .seed = 9});
  CHECK(epoch_labels(again, 1) == second);  // epoch 0 need not be drawn first

  auto sorted = first;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int32_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  CHECK(sorted == all);

  Loader dropping(data, {.batch_size = 4, .drop_last = true});
  CHECK(dropping.batches() == 2);
  CHECK(epoch_labels(dropping, 0) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK_THROWS_AS(dropping.batch(0, 2), ValueError);
}

TEST_CASE("loader: normalisation") {
  ImageDataset data{1, 2, 2, 10, {0, 255, 51, 102}, {3}, {}};
  Loader plain(data, {.batch_size = 1});
  CHECK(plain.batch(0, 0).pixels[3] == doctest::Approx(0.4));
  Loader loader(data, {.batch_size = 1, .mean = {0.1f, 0.2f}, .std = {0.5f, 0.25f}});
  const Batch batch = loader.batch(0, 0);
  CHECK(batch.pixels[0] == doctest::Approx(-0.2));
  CHECK(batch.pixels[1] == doctest::Approx(3.2));
  CHECK(batch.pixels[2] == doctest::Approx(0.2));
  CHECK_THROWS_AS(Loader(data, {.mean = {0}, .std = {1}}), ValueError);
  CHECK_THROWS_AS(Loader(data, {.batch_size = 2, .drop_last = true}), ValueError);

  const ChannelStatistics statistics = channel_statistics(data);
  CHECK(statistics.mean[0] == doctest::Approx(0.1));
  CHECK(statistics.std[1] == doctest::Approx(0.3));
}

TEST_CASE("loader: augmentation moves and mirrors whole images") {
  ImageDataset data{4, 4, 1, 10, {}, {0}, {}};
  for (int p = 0; p < 16; ++p) data.pixels.push_back(static_cast<uint8_t>(100 + p));
  Loader loader(data, {.batch_size = 1, .crop_padding = 2, .flip = true});
  const auto at = [](const std::vector<float>& pixels, int y, int x) {
    return static_cast<int>(std::lround(255 * pixels[static_cast<size_t>(4 * y + x)]));
  };
  bool seen_mirrored = false, seen_straight = false;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto pixels = loader.batch(epoch, 0).pixels;
    CHECK(pixels == loader.batch(epoch, 0).pixels);
    // A shift by at most 2 leaves at least one of the image's pixels in the middle 2 x 2.
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 3; ++x) {
        const int left = at(pixels, y, x), right = at(pixels, y, x + 1);
        if (left == 0 || right == 0) continue;
        CHECK(std::abs(right - left) == 1);
        (right > left ? seen_straight : seen_mirrored) = true;
      }
    }
  }
  CHECK(seen_straight);
  CHECK(seen_mirrored);
}

TEST_SUITE_END();
