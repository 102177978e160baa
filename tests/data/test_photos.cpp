// Folders of photographs: classes, splits, bad files, batches.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/files/cache.h"
#include "data/base/files.h"
#include "data/base/prefetch.h"
#include "data/images/image_file.h"
#include "data/images/photo_check.h"
#include "data/images/photo_loader.h"
#include "data/images/resample.h"
#include "tests/data/photo_fixture.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace rw::test;
namespace fs = std::filesystem;

namespace {

// Adds `count` pictures whose first channel tells them apart.
void add_class(const fs::path& folder, int count, int height = 12, int width = 16) {
  for (int i = 0; i < count; ++i) {
    Image image = gradient(height, width);
    for (size_t p = 0; p < image.pixels.size(); p += 3)
      image.pixels[p] = static_cast<uint8_t>(10 * i);
    const std::string name = "photo" + std::to_string(i);
    if (i % 2)
      write_file(folder / (name + ".JPG"), jpeg_bytes(image));
    else
      write_file(folder / (name + ".png"), png_bytes(image));
  }
}

std::vector<std::string> file_names_of(const PhotoDataset& data, const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& file : data.files) names.push_back(file.lexically_relative(folder));
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("photo folders: train and val have their own folders of classes") {
  const TemporaryFolder folder;
  for (const char* split : {"train", "val"}) {
    add_class(folder / split / "dog", 2);
    add_class(folder / split / "cat" / "deeper", 1);
  }
  fs::remove_all(folder / "val/cat");
  write_file(folder / "train/dog/notes.txt", "no photograph");
  write_file(folder / "train/dog/._photo0.png", "what a Mac leaves behind");
  fs::create_directory(folder / "train/.hidden");
  const PhotoDataset train = list_photos(folder.path, Split::train);
  CHECK(train.class_names == Names{"cat", "dog"});
  CHECK(file_names_of(train, folder.path) ==
        Names{"train/cat/deeper/photo0.png", "train/dog/photo0.png", "train/dog/photo1.JPG"});
  CHECK(train.labels == std::vector<int32_t>{0, 1, 1});
  const PhotoDataset val = list_photos(folder.path, Split::test);
  CHECK(val.class_names == train.class_names);
  CHECK(val.labels == std::vector<int32_t>{1, 1});

  const auto strict = [&] { list_photos(folder.path, Split::train, {.refuse_others = true}); };
  CHECK(fault_of(strict).c_str() == doctest::Contains("notes.txt' must be a PNG"));
  add_class(folder / "val/bird", 1);
  CHECK(fault_of([&] { list_photos(folder.path, Split::test); }).c_str() ==
        doctest::Contains("bird' must be one of the classes"));
}

TEST_CASE(
    "photo folders: a share of every class is split off, and stays when photographs are added") {
  const TemporaryFolder folder;
  add_class(folder / "cat", 10);
  add_class(folder / "train", 5);  // "train" is a class, since there is no "val"
  add_class(folder / "single", 1);
  const auto split = [&](Split which, const PhotoOptions& options = {}) {
    return file_names_of(list_photos(folder.path, which, options), folder.path);
  };
  const Names train = split(Split::train), test = split(Split::test);
  CHECK(test.size() == 2 + 1);
  CHECK(train.size() == 8 + 4 + 1);
  Names all = train;
  all.insert(all.end(), test.begin(), test.end());
  CHECK(std::set(all.begin(), all.end()).size() == 16);
  CHECK(split(Split::test) == test);
  CHECK(split(Split::test, {.split_seed = 1}) != test);
  CHECK(split(Split::test, {.test_share = 0.5}).size() == 5 + 3);
  CHECK(split(Split::train, {.test_share = 0.99}).size() == 1 + 1 + 1);  // one of each stays
  CHECK_THROWS_AS(split(Split::test, {.test_share = 1}), ValueError);

  write_file(folder / "cat/another.png", png_bytes(gradient(2, 2)));
  const Names grown = split(Split::test);
  const auto kept = std::ranges::count_if(
      test, [&](const std::string& name) { return std::ranges::count(grown, name) == 1; });
  CHECK(kept >= 2);  // of 3
}

TEST_CASE("photo folders: what is no data set is refused, with what to do") {
  const TemporaryFolder folder;
  const auto fault = [&](const fs::path& path) {
    return fault_of([&] { list_photos(path, Split::train); });
  };
  CHECK(fault(folder / "absent").c_str() == doctest::Contains("absent' must be a folder"));
  write_file(folder / "file", "");
  CHECK(fault(folder / "file").c_str() == doctest::Contains("got a file"));
  CHECK(fault(folder.path).c_str() == doctest::Contains("of 2 classes or more, got 0; put"));
  add_class(folder / "cat", 1);
  CHECK(fault(folder.path).c_str() == doctest::Contains("of 2 classes or more, got 1; put"));
  fs::create_directory(folder / "dog");
  CHECK(fault(folder.path).c_str() == doctest::Contains("dog' must hold PNG"));
  add_class(folder / "dog", 1);
  CHECK(fault(folder.path) == "no FileError");
  CHECK(fault_of([&] { list_photos(folder.path, Split::test); }).c_str() ==
        doctest::Contains("must hold photographs to test with"));
  add_class(folder / "\xff\xfe", 1);
  CHECK(fault(folder.path).c_str() == doctest::Contains("must have a name in UTF-8"));
}

TEST_CASE("photo folders: splits have the names that people give them") {
  for (const auto& [train, test] : {std::pair{"train", "validation"},
                                    {"Training", "VAL"},
                                    {"TRAIN", "Valid"},
                                    {"train", "dev"},
                                    {"training_set", "test_set"},
                                    {"train", "eval"},
                                    {"train", "testing"}}) {
    CAPTURE(test);
    const TemporaryFolder folder;
    for (const char* split : {train, test})
      for (const char* name : {"a", "b"}) add_class(folder / split / name, split == train ? 3 : 2);
    CHECK(list_photos(folder.path, Split::train).class_names == Names{"a", "b"});
    CHECK(list_photos(folder.path, Split::train).size() == 6);
    CHECK(list_photos(folder.path, Split::test).size() == 4);
  }
  // Several to test with: the first in the usual order, and the others are said.
  const TemporaryFolder folder;
  for (const char* split : {"train", "test", "val", "notes"})
    for (const char* name : {"a", "b"}) add_class(folder / split / name, split[0] == 'v' ? 1 : 2);
  const PhotoDataset val = list_photos(folder.path, Split::test);
  CHECK(val.size() == 2);
  CHECK(val.notes == Names{"folders beside those of the splits are left out: notes, test"});
  // A split alone to test with.
  for (const char* split : {"train", "notes", "test"}) fs::remove_all(folder / split);
  CHECK(fault_of([&] { list_photos(folder.path, Split::train); }).c_str() ==
        doctest::Contains("must hold a folder train beside val, got none"));
  // No classes in the splits.
  for (const char* split : {"train", "val"}) {
    fs::remove_all(folder / split);
    add_class(folder / split, 3);
  }
  CHECK(fault_of([&] { list_photos(folder.path, Split::train); }).c_str() ==
        doctest::Contains("train' must hold folders of 2 classes or more, got 0"));
  // Beside other classes, these are classes.
  add_class(folder / "bus", 3);
  CHECK(list_photos(folder.path, Split::train).class_names == Names{"bus", "train", "val"});
}

TEST_CASE("photo folders: what is left out or lies deeper is said") {
  const TemporaryFolder folder;
  add_class(folder / "cat", 2);
  add_class(folder / "cat/deeper", 1);
  add_class(folder / "dog", 2);
  add_class(folder / ".elsewhere/fox", 2);
  fs::create_directory_symlink(folder / ".elsewhere/fox", folder / "dog/link");
  fs::create_directory_symlink(folder / "dog", folder / "dog/circle");
  for (const char* name : {"cat/a.tiff", "cat/b.TIFF", "dog/c.tiff", "dog/notes", ".DS_Store",
                           "dog/.hidden.gif", "stray.jpg"})
    write_file(folder / name, "");
  write_file(folder / "cat/d.gif", "");
  write_file(folder / "cat/e.jfif", jpeg_bytes(gradient(2, 2)));
  const PhotoDataset data = list_photos(folder.path, Split::train, {.test_share = 0});
  CHECK(data.size() == 6);
  CHECK(data.notes ==
        Names{"1 file without an ending is not read", "1 .gif file is not read",
              "3 .tiff files are not read",
              "folders inside of the folder of a class belong to this class: cat/deeper",
              "links to folders inside of the folder of a class are left out: dog/circle, dog/link",
              "1 photograph is left out, in no folder of a class"});
  fs::create_directory(folder / "fox");
  write_file(folder / "fox/a.heic", "");
  write_file(folder / "fox/b.heic", "");
  CHECK(fault_of([&] { list_photos(folder.path, Split::train); }).c_str() ==
        doctest::Contains("files of its class, got only 2 .heic files"));
}

TEST_CASE("photo folders: bad photographs are refused, or left out and named") {
  const TemporaryFolder folder;
  add_class(folder / "cat", 4);
  add_class(folder / "dog", 4);
  PhotoBytes cut = jpeg_bytes(gradient(30, 30));
  cut.resize(cut.size() / 2);
  write_file(folder / "cat/photo1.JPG", cut);
  write_file(folder / "dog/photo0.png", "GIF89a");
  write_file(folder / "dog/photo2.png", "");
  fs::create_symlink("nowhere", folder / "dog/photo3.png");
  const PhotoDataset all = list_photos(folder.path, Split::train, {.test_share = 0});
  PhotoDataset data = all;
  REQUIRE(data.size() == 9);
  // Decoding finds all of them.
  CHECK(fault_of([&] { check_photos(data, {.decodes = true}); }).c_str() ==
        doctest::Contains("cat/photo1.JPG' must be a whole JPEG image"));
  CHECK(data.size() == 9);
  Names skipped = check_photos(data, {.bad = BadPhotos::are_skipped, .decodes = true});
  REQUIRE(skipped.size() == 4);
  CHECK(skipped[0].c_str() == doctest::Contains("cat/photo1.JPG"));
  CHECK(skipped[2].c_str() == doctest::Contains("image, got 0 bytes"));
  CHECK(skipped[3].c_str() == doctest::Contains("dog/photo3.png is not there"));
  CHECK(file_names_of(data, folder.path) == Names{"cat/photo0.png", "cat/photo2.png",
                                                  "cat/photo3.JPG", "dog/photo1.JPG",
                                                  "dog/photo3.JPG"});
  CHECK(data.labels == std::vector<int32_t>{0, 0, 0, 1, 1});

  // Headers do not show what is cut short.
  data = all;
  CHECK(fault_of([&] { check_photos(data); }).c_str() == doctest::Contains("image, got 6 bytes"));
  std::atomic<size_t> calls = 0;
  skipped =
      check_photos(data, {.bad = BadPhotos::are_skipped, .progress = [&](size_t) { ++calls; }});
  CHECK(calls == 9);
  CHECK(skipped.size() == 3);
  REQUIRE(data.size() == 6);
  CHECK(data.headers[0].size.height == 12);
  CHECK(data.headers[0].size.width == 16);
  CHECK(data.headers[1].size.width == 30);

  for (const char* name : {"dog/photo1.JPG", "dog/photo3.JPG"}) write_file(folder / name, "bad");
  CHECK(fault_of([&] { check_photos(data, {.bad = BadPhotos::are_skipped}); }).c_str() ==
        doctest::Contains("the class 'dog' must have a photograph that can be read"));
}

TEST_CASE("photo folders: headers are kept for the next run, as long as files do not change") {
  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder / "cache");
  fs::create_directory(folder / "cache");
  fs::permissions(folder / "cache", fs::perms::owner_all);
  add_class(folder / "photos/cat", 2);
  add_class(folder / "photos/dog", 2);
  const PhotoDataset all = list_photos(folder / "photos", Split::train, {.test_share = 0});
  PhotoDataset data = all;
  check_photos(data, {.cache = "kept"});
  // The file that is kept is believed: it is changed here.
  std::vector<std::byte> bytes = read_cache("kept");
  REQUIRE(bytes.size() == 4 * 24);
  for (size_t at = 16; at < bytes.size(); at += 24) bytes[at] = std::byte{99};
  write_cache("kept", bytes);
  data = all;
  check_photos(data, {.cache = "kept"});
  for (const ImageHeader& header : data.headers) CHECK(header.size.height == 99);
  // A file of the same size and time in its place is looked at.
  const auto time = fs::last_write_time(all.files[1]);
  write_file(all.files[1], std::string(fs::file_size(all.files[1]), 'x'));
  fs::last_write_time(all.files[1], time);
  data = all;
  CHECK(check_photos(data, {.bad = BadPhotos::are_skipped, .cache = "kept"}).size() == 1);
  CHECK(read_cache("kept").size() == 3 * 24);
}

TEST_CASE("photo loader: the middle at the size wanted, normalised") {
  const TemporaryFolder folder;
  const Image image = gradient(40, 60);
  write_file(folder / "a.png", png_bytes(image));
  const PhotoDataset data{.files = {folder / "a.png"}, .labels = {1}, .class_names = {"x", "y"}};
  PhotoLoader loader(data, {.batch_size = 4, .image = 8});
  REQUIRE(loader.batches() == 1);
  const Batch batch = loader.batch(0, 0);
  CHECK(batch.labels == std::vector<int32_t>{1});
  std::vector<float> expected(3 * 8 * 8);
  resample(image, centre_crop(40, 60, 0.875), 8, false, expected.data());
  const auto [mean, std] = imagenet_statistics();
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(batch.pixels[i] == doctest::Approx((expected[i] / 255 - mean[i % 3]) / std[i % 3]));
  CHECK_THROWS_AS(PhotoLoader(data, {.image = 0}), ValueError);
  CHECK_THROWS_AS(PhotoLoader(data, {.batch_size = 2, .drop_last = true}), ValueError);
  CHECK_THROWS_AS(PhotoLoader(data, {.statistics = {{0}, {1}}}), ValueError);
  fs::remove(folder / "a.png");
  CHECK_THROWS_WITH_AS(loader.batch(0, 0), doctest::Contains("a.png"), FileError);
}

TEST_CASE("photo loader: what cannot be decoded is left out and noted") {
  const TemporaryFolder folder;
  add_class(folder / "cat", 5);
  PhotoBytes cut = png_bytes(gradient(30, 30));
  cut.resize(cut.size() - 30);
  write_file(folder / "cat/photo2.png", cut);
  const PhotoDataset data{.files = {folder / "cat/photo0.png", folder / "cat/photo2.png",
                                    folder / "cat/photo1.JPG", folder / "cat/photo3.JPG"},
                          .labels = {0, 1, 2, 3},
                          .class_names = {"a", "b", "c", "d"}};
  const PhotoDataset good{.files = {data.files[0], data.files[2]}, .labels = {0, 2}};
  PhotoFaults faults;
  PhotoLoader loader(data, {.batch_size = 3, .image = 8, .faults = &faults});
  PhotoLoader expected(good, {.batch_size = 2, .image = 8});
  const Batch batch = loader.batch(0, 0);
  CHECK(batch.labels == std::vector<int32_t>{0, 2});
  CHECK(batch.pixels == expected.batch(0, 0).pixels);
  REQUIRE(faults.all().size() == 1);
  CHECK(faults.all().begin()->first == data.files[1]);
  CHECK(faults.all().begin()->second.c_str() ==
        doctest::Contains("photo2.png' must be a whole PNG"));
  // A batch of which nothing is left is the next one that has some.
  PhotoLoader single(data, {.batch_size = 1, .image = 8, .faults = &faults});
  CHECK(single.batch(0, 1).labels == std::vector<int32_t>{2});
  CHECK_THROWS_AS(single.batch(0, 4), ValueError);
  CHECK(faults.all().size() == 1);
  for (const fs::path& file : data.files) write_file(file, "bad");
  CHECK_THROWS_WITH_AS(single.batch(0, 0), doctest::Contains("got none of 4"), FileError);
  PhotoLoader strict(data, {.batch_size = 3, .image = 8});
  CHECK_THROWS_AS(strict.batch(0, 0), FileError);
}

TEST_CASE(
    "photo loader: batches are functions of seed, epoch and index, on any number of threads") {
  const TemporaryFolder folder;
  add_class(folder / "cat", 5);
  add_class(folder / "dog", 4);
  const PhotoDataset data = list_photos(folder.path, Split::train, {.test_share = 0});
  const auto loader = [&](uint64_t seed, int threads) {
    return PhotoLoader(data, {.batch_size = 4,
                              .image = 6,
                              .shuffle = true,
                              .augment = true,
                              .seed = seed,
                              .threads = threads});
  };
  PhotoLoader one = loader(3, 1), many = loader(3, 4), other = loader(4, 1);
  REQUIRE(one.batches() == 3);
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < 3; ++i) {
    const Batch batch = one.batch(1, i);
    CHECK(batch.pixels == many.batch(1, i).pixels);
    CHECK(batch.labels == many.batch(1, i).labels);
    CHECK(batch.pixels != one.batch(0, i).pixels);
    CHECK(batch.pixels != other.batch(1, i).pixels);
    labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
  }
  CHECK(std::ranges::count(labels, 1) == 4);
  CHECK(labels.size() == 9);

  BatchStream<ImageBatches> stream(one, {3, 1, 2});
  CHECK(stream.next().pixels == many.batch(1, 2).pixels);
  CHECK(stream.next().pixels == many.batch(2, 0).pixels);
}

TEST_CASE("photo loader: augmentation mirrors half of the photographs") {
  const TemporaryFolder folder;
  write_file(folder / "a.png", png_bytes(gradient(40, 60)));
  const PhotoDataset data{.files = {folder / "a.png"}, .labels = {0}, .class_names = {"x"}};
  PhotoLoader loader(data, {.batch_size = 1, .image = 4, .augment = true});
  int mirrored = 0;
  for (int64_t epoch = 0; epoch < 60; ++epoch) {
    const auto pixels = loader.batch(epoch, 0).pixels;
    mirrored += pixels[1] > pixels[10];  // the second channel grows to the right
  }
  CHECK(mirrored > 18);
  CHECK(mirrored < 42);
}

TEST_CASE("photo loader: crops of small photographs are magnified twice at most") {
  const TemporaryFolder folder;
  write_file(folder / "a.png", png_bytes(gradient(16, 16)));
  const PhotoDataset data{.files = {folder / "a.png"}, .labels = {0}, .class_names = {"x"}};
  // The second channel grows to the right: its range tells the width of the crop, at least 0.43 of
  // the photograph (a quarter of its area, at 3:4), where 8 % of the area would be down to 0.24.
  PhotoLoader loader(data, {.batch_size = 1, .image = 16, .augment = true});
  const float std = imagenet_statistics().std[1];
  float least = 1, most = 0;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const auto pixels = loader.batch(epoch, 0).pixels;
    float low = pixels[1], high = pixels[1];
    for (size_t i = 1; i < pixels.size(); i += 3)
      low = std::min(low, pixels[i]), high = std::max(high, pixels[i]);
    least = std::min(least, (high - low) * std), most = std::max(most, (high - low) * std);
  }
  CHECK(least > 0.34);
  CHECK(least < 0.5);
  CHECK(most > 0.85);
}

TEST_SUITE_END();
