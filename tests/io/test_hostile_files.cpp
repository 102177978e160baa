// Files that lie about their sizes, that are damaged, or that hold more than memory does: errors
// that name them, and nothing of what they promise.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <zlib.h>

#include "backends/open.h"
#include "core/base/error.h"
#include "core/memory/memory_report.h"
#include "data/base/files.h"
#include "data/images/idx.h"
#include "data/images/loader.h"
#include "data/images/synthetic.h"
#include "data/text/vocabulary.h"
#include "io/formats/npy.h"
#include "io/models/bert.h"
#include "ops/ops.h"
#include "planner/dry_run.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"

using namespace rw;
using test::bytes_of;
using test::contains;
namespace fs = std::filesystem;

namespace {

// The message of the FileError or ValueError that `function` throws.
std::string hostile_error(auto&& function) {
  try {
    function();
  } catch (const FileError& error) {
    return error.what();
  } catch (const ValueError& error) {
    return std::string("ValueError ") + error.what();
  }
  return "no error";
}

std::vector<uint8_t> idx_header(const std::vector<uint32_t>& shape) {
  std::vector<uint8_t> bytes = {0, 0, 8, static_cast<uint8_t>(shape.size())};
  for (const uint32_t size : shape)
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<uint8_t>(size >> shift));
  return bytes;
}

void write_gzip(const fs::path& path, size_t count, char byte) {
  const std::string piece(1 << 20, byte);
  const gzFile file = gzopen(path.c_str(), "wb9");
  for (size_t i = 0; i < count; i += piece.size())
    gzwrite(file, piece.data(), static_cast<unsigned>(std::min(piece.size(), count - i)));
  gzclose(file);
}

// A profile as --save-profile writes it.
nlohmann::json hostile_profile() {
  return {{"driver", "a driver"},
          {"driver_version", "1"},
          {"features", 511},
          {"heap_bytes", 1u << 30},
          {"is_cpu", false},
          {"matrix_bf16", {0, 0, 0}},
          {"matrix_f16", {0, 0, 0}},
          {"matrix_subgroup", 0},
          {"max_block", 1u << 30},
          {"max_groups", {65535, 65535, 65535}},
          {"max_push_bytes", 128},
          {"max_range", 1u << 30},
          {"max_threads", 1024},
          {"name", "a device"},
          {"offset_alignment", 16},
          {"shared_bytes", 49152},
          {"subgroup_size", 32},
          {"workgroup_size", 32},
          {"subgroup_size_control", true},
          {"multiprocessors", 32},
          {"unified_memory", false},
          {"uuid", ""}};
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("hostile files: sizes of IDX files do not wrap around") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "array";
  for (const std::vector<uint32_t>& shape : {std::vector<uint32_t>{1u << 20, 1u << 20, 1u << 24},
                                             {65536, 1u << 30, 1u << 30},
                                             {1u << 16, 1u << 16, 1u << 16, 1u << 16},
                                             {UINT32_MAX, UINT32_MAX, 0}}) {
    write_file(file, idx_header(shape));
    CHECK(contains(hostile_error([&] { load_idx(file); }), "must have more than 2^63 bytes"));
  }
  write_file(file, idx_header({65536, 1u << 16, 1u << 16}));
  CHECK(contains(hostile_error([&] { load_idx(file); }), "must have 281474976710656 bytes"));
}

TEST_CASE("hostile files: images without pixels are refused") {
  const TemporaryFolder folder;
  const auto load = [&] { load_mnist(folder.path, Split::train); };
  save_idx(folder.path / "train-labels-idx1-ubyte", {{3}, {0, 1, 2}});
  for (const std::vector<uint32_t>& shape :
       {std::vector<uint32_t>{3, 0, 28}, {3, 0, 0xFFFFFFFF}, {3, 0xFFFFFFFF, 0}, {3, 0, 0}}) {
    write_file(folder.path / "train-images-idx3-ubyte", idx_header(shape));
    CHECK(contains(hostile_error(load), "images of 1 to 2147483647 rows and columns"));
  }
}

TEST_CASE("hostile files: loaders take data only whose sizes agree") {
  const ImageDataset good{2, 3, 1, 10, std::vector<uint8_t>(12), {4, 5}, {}};
  CHECK(Loader(good, {.batch_size = 2}).batch(0, 0).pixels.size() == 12);
  const auto refused = [&](auto&& change) {
    ImageDataset bad = good;
    change(bad);
    CHECK(contains(hostile_error([&] { Loader(bad, {.batch_size = 2}); }), "ValueError [Loader]"));
    CHECK(contains(hostile_error([&] { channel_statistics(bad); }),
                   "ValueError [channel_statistics]"));
  };
  refused([](ImageDataset& d) { d.pixels.pop_back(); });
  refused([](ImageDataset& d) { d.labels.push_back(1); });
  refused([](ImageDataset& d) { d.channels = 0; });
  refused([](ImageDataset& d) { d.height = -2, d.width = -3; });
  refused([](ImageDataset& d) { d.height = 1 << 16, d.width = 1 << 16, d.pixels.clear(); });
  CHECK(contains(hostile_error([&] { Loader(good, {.batch_size = 2, .crop_padding = INT32_MAX}); }),
                 "crop_padding"));
}

TEST_CASE("hostile files: a gzip file that holds far more than its size is refused") {
  const TemporaryFolder folder;
  const fs::path bomb = folder.path / "bomb";
  write_gzip(bomb, size_t{80} << 20, '\n');
  REQUIRE(fs::file_size(bomb) < 100'000);
  CHECK(
      contains(hostile_error([&] { read_file(bomb); }), "holds more than 64 MiB and 64 times its"));
  CHECK(contains(hostile_error([&] { Vocabulary::load(bomb); }), "bomb"));
  // Small ones and plain ones are nobody's harm, whatever their ratio.
  write_gzip(bomb, size_t{8} << 20, '\n');
  CHECK(read_file(bomb).size() == size_t{8} << 20);
  CHECK(contains(hostile_error([&] { read_file(bomb, 1 << 20); }), "at most 1048576 bytes"));
  fs::resize_file(folder.path / "bomb", 0);
  CHECK(read_file(bomb).empty());
}

// AddressSanitizer needs all addresses, and ends the process where an allocation is this large.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("hostile files: a file larger than memory is refused before it is read") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "sparse";
  write_file(file, "plain");
  std::error_code unsupported;
  fs::resize_file(file, uint64_t{1} << 42, unsupported);  // takes no room on the disk
  if (unsupported) return;
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  rlimit limit = before;
  limit.rlim_cur = std::min<rlim_t>(before.rlim_cur, rlim_t{1} << 40);
  setrlimit(RLIMIT_AS, &limit);
  CHECK_THROWS_AS(read_file(file), OutOfMemory);
  CHECK_THROWS_AS(load_idx(file), OutOfMemory);
  CHECK(contains(hostile_error([&] { read_file(file, 1000); }), "at most 1000 bytes"));
  setrlimit(RLIMIT_AS, &before);
}
#endif

TEST_CASE("hostile files: vocabularies have an end") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "vocab.txt";
  std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (size_t i = 0; i <= size_t{1} << 22; ++i)
    fmt::format_to(std::back_inserter(text), "{:x}\n", i);
  write_file(file, std::string_view(text));
  CHECK(contains(hostile_error([&] { Vocabulary::load(file); }), "more than 4194304 tokens"));
  std::ofstream(file, std::ios::app).close();
  fs::resize_file(file, (uint64_t{64} << 20) + 1);
  CHECK(contains(hostile_error([&] { Vocabulary::load(file); }), "at most 67108864 bytes"));
}

TEST_CASE("hostile files: names that no file can have") {
  const fs::path name = std::string(5000, 'x');
  CHECK(contains(hostile_error([&] { read_file(name); }), "is not there"));
  CHECK(contains(hostile_error([&] { load_mnist(name, Split::train); }), "is not a folder"));
  CHECK(contains(hostile_error([&] { read_bert_config(name); }), "must be a file"));
}

TEST_CASE("hostile files: a data set in the cache that is no longer whole is drawn again") {
  const TemporaryFolder folder;
  const SyntheticSizes sizes{.train = 30, .test = 20};
  const auto check_made_again = [&](auto&& make, const char* name) {
    const fs::path file = make(folder.path, sizes) / name;
    CAPTURE(name);
    const std::string whole = bytes_of(file);
    REQUIRE(!whole.empty());
    fs::resize_file(file, whole.size() / 2);
    make(folder.path, sizes);
    CHECK(bytes_of(file) == whole);
    fs::remove(file);
    make(folder.path, sizes);
    CHECK(bytes_of(file) == whole);
    const auto time = fs::last_write_time(file);
    make(folder.path, sizes);
    CHECK(fs::last_write_time(file) == time);  // the whole file stays
  };
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
    check_made_again(synthetic_mnist, name);
  for (const char* name : {"data_batch_1.bin", "test_batch.bin"})
    check_made_again(synthetic_cifar10, name);
}

TEST_CASE("hostile files: numbers of a device profile are bounded") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "device.json";
  const auto open = [&](const nlohmann::json& json) {
    write_file(file, json.dump());
    open_backend("dry:" + file.string());
  };
  CHECK(hostile_error([&] { open(hostile_profile()); }) == "no error");
  const auto refused = [&](const char* key, const nlohmann::json& value, const std::string& got) {
    nlohmann::json json = hostile_profile();
    json[key] = value;
    const std::string error = hostile_error([&] { open(json); });
    CAPTURE(error);
    CHECK(contains(error, fmt::format("\"{}\" of '{}' must be", key, file.string())));
    CHECK(contains(error, "got " + got));
  };
  refused("subgroup_size", 0, "0");
  refused("subgroup_size", 2048, "2048");
  refused("subgroup_size", 24, "24");
  refused("heap_bytes", -1, "-1");
  refused("heap_bytes", 1e300, "1e+300");
  refused("heap_bytes", UINT64_MAX, "18446744073709551615");
  refused("max_block", 0.5, "0.5");
  refused("max_threads", "many", "\"many\"");
  refused("max_threads", 0, "0");
  refused("offset_alignment", 0, "0");
  refused("max_groups", {1, 2}, "a list of 2");
  refused("max_groups", {1, 2, -3}, "-3");
  refused("is_cpu", 1, "1");
  refused("name", nullptr, "null");
  refused("features", nlohmann::json::object(), "an object of 0");
  nlohmann::json json = hostile_profile();
  json.erase("offset_alignment");
  CHECK(contains(hostile_error([&] { open(json); }), "\"offset_alignment\" of"));
  CHECK(contains(hostile_error([&] { open(nlohmann::json::array()); }), "is missing"));
  write_file(file, "{\"heap_bytes\": 1e999}");
  CHECK(contains(hostile_error([&] { open_backend("dry:" + file.string()); }), "must be JSON"));
  write_file(file, std::string((1 << 20) + 1, ' '));
  CHECK(contains(hostile_error([&] { open_backend("dry:" + file.string()); }),
                 "at most 1048576 bytes"));
  CHECK(contains(hostile_error([&] { open_backend("dry:" + folder.path.string() + "/no.json"); }),
                 "must be a file that can be read"));
}

TEST_CASE("hostile files: a profile of the least device still plans long sums, or says why not") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "least.json";
  nlohmann::json json = hostile_profile();
  json["features"] = 0;
  json["max_threads"] = 128;
  write_file(file, json.dump());
  const auto product = [&](int64_t k) {
    dry_run(open_backend("dry:" + file.string()), [&] { matmul(zeros({2, k}), zeros({k, 2})); });
  };
  product(100);
  product(100'000);
  json["shared_bytes"] = 1024;  // less than any tile needs
  write_file(file, json.dump());
  product(100);
  CHECK_THROWS_AS(product(100'000), DeviceError);
}

TEST_CASE("hostile files: numbers of a BERT's configuration are bounded") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "config.json";
  const auto refused = [&](const std::string& text, const std::string& message) {
    write_file(file, text);
    const std::string error = hostile_error([&] { read_bert_config(file); });
    CAPTURE(error);
    CHECK(contains(error, message));
    CHECK(contains(error, file.string()));
  };
  refused(R"({"num_hidden_layers": 1000000000})", "in [1, 10000], got 1000000000");
  refused(R"({"hidden_size": 1e300})", "must be a whole number in [1, 65536], got 1e+300");
  refused(R"({"hidden_size": 99999999999999999999})", "must be a whole number");
  refused(R"({"hidden_size": 768.5})", "got 768.5");
  refused(R"({"hidden_size": -768})", "got -768");
  refused(R"({"vocab_size": 0})", "got 0");
  refused(R"({"vocab_size": true})", "got true");
  refused(R"({"vocab_size": [1, 2]})", "got a list of 2");
  refused(R"({"hidden_dropout_prob": 1})", "in [0, 0.999], got 1");
  refused(R"({"hidden_dropout_prob": null})", "got null");
  refused(R"({"layer_norm_eps": -1e-12})", "got -1e-12");
  refused(R"({"initializer_range": 1e400})", "is not a BERT configuration");
  refused(R"({"hidden_size": 770})", "got 770 and 12");
  refused(R"({"hidden_act": [[[["gelu"]]]]})", "has hidden_act a list of 1");
  refused("[" + std::string(100'000, '[') + "1" + std::string(100'001, ']'), "a list of 1");
  refused(std::string(500'000, '['), "is not a BERT configuration");
  // Many keys take no time to speak of.
  std::string many = "{\"hidden_size\": 24";
  for (int i = 0; i < 60'000; ++i) many += fmt::format(",\"k{}\":1", i);
  write_file(file, many + "}");
  CHECK(read_bert_config(file).hidden_size == 24);
}

TEST_CASE("hostile files: headers of .npy files that would exhaust the stack") {
  const TemporaryFolder folder;
  set_default_device(open_backend("reference"));
  const fs::path file = folder.path / "array.npy";
  const auto load = [&](const std::string& header) {
    std::string text = "\x93NUMPY";
    text += std::string("\1\0", 2) + char(header.size() & 255) + char(header.size() >> 8);
    write_file(file, text + header + std::string(8, '\0'));
    load_npy(file);
  };
  const std::string spaces(60'000, ' ');
  const char* pattern = "{{{}'descr':{}'<f4', 'fortran_order':{}False, 'shape':{}({}2,), }}\n";
  CHECK(hostile_error([&] { load(fmt::format(fmt::runtime(pattern), "", " ", " ", " ", "")); }) ==
        "no error");
  for (int i = 0; i < 5; ++i) {
    std::string at[5];
    at[i] = spaces;
    const std::string error = hostile_error(
        [&] { load(fmt::format(fmt::runtime(pattern), at[0], at[1], at[2], at[3], at[4])); });
    CHECK((error == "no error" || contains(error, "npy")));
  }
}

TEST_CASE("hostile files: memory sizes below a byte are refused") {
  for (const char* text : {"0.0001B", "0", "0GiB", "1e-300", "0.9"})
    CHECK(contains(hostile_error([&] { parse_bytes(text); }), "at least a byte"));
  CHECK(parse_bytes("1") == 1);
  CHECK(parse_bytes("0.001KiB") == 1);
}

TEST_SUITE_END();
