// safetensors: files written and read back, and files that lie.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <zlib.h>

#include "data/base/files.h"
#include "data/base/random.h"
#include "io/formats/safetensors.h"
#include "io/models/model.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using test::bytes_of;
using test::on_each_device;
using test::some_values;
namespace fs = std::filesystem;

namespace {

// A file's bytes: the header's length, the header, `data` bytes.
std::vector<std::byte> file_with(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::vector<std::byte> bytes(sizeof length + header.size() + data);
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, header.data(), header.size());
  return bytes;
}

SafetensorsFile open_bytes(const std::vector<std::byte>& bytes) {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "hostile.safetensors";
  write_file(path, std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  return SafetensorsFile(path);
}

// The message with which a header is refused.
std::string header_refusal(const std::string& header, size_t data) {
  try {
    open_bytes(file_with(header, data));
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

const std::string good =
    R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
    R"("c":{"dtype":"I64","shape":[0],"data_offsets":[11,11]}})";

void write_header(const fs::path& path, const std::string& header, const void* data, size_t size) {
  auto bytes = file_with(header, size);
  std::memcpy(bytes.data() + bytes.size() - size, data, size);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

TEST_CASE("safetensors: what is written is read back, on every device and in every dtype") {
  on_each_device([] {
    const TemporaryFolder folder;
    const fs::path path = folder.path / "new" / "t.safetensors";
    const std::vector<int32_t> ints = {-5, 1 << 30, 7};
    const std::vector<uint8_t> bytes = {1, 2, 255};
    const Tensor floats = tensor(some_values(24), {2, 3, 4});
    const std::vector<NamedTensor> saved = {{"bytes", tensor(bytes, {3})},
                                            {"floats", floats},
                                            {"scalar", tensor({3.5f}, {})},
                                            {"turned", permute(floats, {2, 0, 1})},
                                            {"halves", cast(floats, DType::f16)},
                                            {"ints", tensor(ints, {3, 1})},
                                            {"none", zeros({0, 4})}};
    write_safetensors(path, saved, {{"format", "pt"}, {"note", "\"\n"}});
    const SafetensorsFile file(path);
    CHECK(file.metadata() == Metadata{{"format", "pt"}, {"note", "\"\n"}});
    REQUIRE(file.tensors().size() == saved.size());
    for (const auto& [name, t] : saved) {
      CAPTURE(name);
      Tensor back = empty(t.shape(), t.dtype());
      file.read(name, back);
      CHECK(back.to_vector() == t.to_vector());
      // Also through a view that is not dense.
      if (t.rank() < 2 || t.numel() == 0) continue;
      Tensor turned = transpose(empty(transpose(t, 0, 1).shape(), t.dtype()), 0, 1);
      file.read(name, turned);
      CHECK(turned.to_vector() == t.to_vector());
    }
    // Every tensor lies at a multiple of its element's size; nothing else is left in the folder.
    CHECK(file.tensors().at("floats").offset % 8 == 0);
    CHECK(file.tensors().at("halves").offset % 2 == 0);
    CHECK(std::distance(fs::directory_iterator(path.parent_path()), {}) == 1);
  });
}

TEST_CASE("safetensors: tensors of several pieces" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const Tensor x = tensor(some_values((1 << 20) * 2 + 5), {(1 << 20) * 2 + 5});
  for (const DType dtype : {DType::f32, DType::f16}) {
    write_safetensors(folder.path / "x", {{"x", x}}, {}, dtype);
    Tensor back = empty(x.shape(), DType::f32);
    SafetensorsFile(folder.path / "x").read("x", back);
    CHECK(back.to_vector() == cast(cast(x, dtype), DType::f32).to_vector());
  }
}

TEST_CASE("safetensors: conversions" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "t";
  const auto header = [](const char* dtype, int bytes) {
    return fmt::format(R"({{"t":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", dtype,
                       bytes);
  };
  Tensor f32 = zeros({3}), f16 = zeros({3}, DType::f16);
  Tensor i32 = tensor(std::vector<int32_t>(3), {3});

  const uint16_t bf16[] = {0x3fc0, 0xc040, 0x7f80};  // 1.5, -3, infinity
  write_header(path, header("BF16", 6), bf16, 6);
  SafetensorsFile(path).read("t", f32);
  CHECK(f32.to_vector() == std::vector<float>{1.5f, -3, INFINITY});
  SafetensorsFile(path).read("t", f16);
  CHECK(f16.to_vector() == std::vector<float>{1.5f, -3, INFINITY});
  CHECK_THROWS_WITH_AS(SafetensorsFile(path).read("t", i32),
                       doctest::Contains("is needed as i32, got BF16"), FileError);

  const double f64[] = {0.1, -2, 1e300};
  write_header(path, header("F64", 24), f64, 24);
  SafetensorsFile(path).read("t", f32);
  CHECK(f32.to_vector() == std::vector<float>{0.1f, -2, INFINITY});

  int64_t i64[] = {INT32_MIN, 5, INT32_MAX};
  write_header(path, header("I64", 24), i64, 24);
  SafetensorsFile(path).read("t", i32);
  CHECK(i32.to_ints() == std::vector<int32_t>{INT32_MIN, 5, INT32_MAX});
  i64[1] = int64_t{1} << 31;
  write_header(path, header("I64", 24), i64, 24);
  CHECK_THROWS_WITH_AS(SafetensorsFile(path).read("t", i32),
                       doctest::Contains("got 2147483648 at index 1"), FileError);
  CHECK_THROWS_WITH_AS(SafetensorsFile(path).read("u", i32), doctest::Contains("no tensor \"u\""),
                       FileError);
  Tensor other = zeros({4});
  CHECK_THROWS_WITH_AS(SafetensorsFile(path).read("t", other),
                       doctest::Contains("shape (4), got (3)"), FileError);
}

TEST_CASE("safetensors: hostile headers are refused" * doctest::test_suite("host")) {
  CHECK(header_refusal(good, 11) == "accepted");
  CHECK(header_refusal(good + "   ", 11) == "accepted");
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  struct Case {
    std::string header;
    size_t data;
    const char* message;
  };
  const std::string two = R"("b":{"dtype":"U8","shape":[4],"data_offsets":)";
  const std::string first = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
  const Case cases[] = {
      {"", 0, "must begin with {"},
      {" {}", 0, "must begin with {"},
      {"{", 0, "not valid JSON"},
      {"{}x", 0, "not valid JSON"},
      {"{\"\xff\":1}", 0, "not valid JSON"},
      {"{}", 1, "1 bytes at the end belong to no tensor"},
      {R"({"t":1})", 0, "must have dtype, shape and data_offsets"},
      {R"({"t":{"dtype":"U8","shape":[0]}})", 0, "must have dtype, shape and data_offsets"},
      {entry("8", "[1]", "[0,1]"), 1, "must have dtype"},
      {entry("\"U8\"", "1", "[0,1]"), 1, "must be a list"},
      {entry("\"U8\"", "[-1]", "[0,1]"), 1, "not negative"},
      {entry("\"U8\"", "[1.5]", "[0,1]"), 1, "must be a list of integers"},
      {entry("\"U8\"", "[1e400]", "[0,1]"), 1, "not valid JSON"},
      {entry("\"U8\"", "[1,1,1,1,1,1,2]", "[0,1]"), 1, "must have 2 bytes for U8 (2), got 1"},
      {entry("\"F4\"", "[4294967296,4294967296]", "[0,0]"), 0, "too large"},
      {entry("\"C64\"", "[1]", "[0,9]"), 8, "within the file's 8 bytes"},
      {entry("\"F8_E8M0\"", "[3]", "[1,4]"), 4, "1 bytes before tensor"},
      {entry("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, "too large"},
      {entry("\"U8\"", "[18446744073709551615]", "[0,0]"), 0, "too large"},
      {entry("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "too large"},
      {entry("\"U8\"", "[99999999999999999999]", "[0,0]"), 0, "must be a list of integers"},
      {entry("\"U8\"", "[4]", "[0]"), 4, "must be a range"},
      {entry("\"U8\"", "[4]", "[4,0]"), 4, "must be a range"},
      {entry("\"U8\"", "[5]", "[0,5]"), 4, "within the file's 4 bytes"},
      {entry("\"U8\"", "[4]", "[0,18446744073709551615]"), 4, "within the file's 4 bytes"},
      {entry("\"U8\"", "[3]", "[0,4]"), 4, "must have 3 bytes for U8 (3), got 4"},
      {entry("\"U8\"", "[[3]]", "[0,4]"), 4, "nested too deep"},
      {entry("\"U8\"", "[3]", "[1,4]"), 4, "1 bytes before tensor \"t\" belong to none"},
      {first + two + "[3,7]}}", 7, "tensor \"b\" overlaps another"},
      {first + two + "[0,4]}}", 4, "overlaps another"},
      {first + two + "[5,9]}}", 9, "belong to none"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
       "\"dtype\" twice"},
      {first + R"("a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})", 4, "names \"a\" twice"},
      {R"({"__metadata__":{"k":1}})", 0, "the metadata \"k\" must be a string"},
      {R"({"__metadata__":[]})", 0, "__metadata__ must be an object"},
      {R"({"a\nb":1})", 0, R"(tensor "a\nb" of ')"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.header);
    const std::string message = header_refusal(c.header, c.data);
    CAPTURE(message);
    CHECK(message.find(c.message) != std::string::npos);
    CHECK(message.find("hostile.safetensors") != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK(header_refusal(std::string(100'000, '['), 0).find("must begin") != std::string::npos);
  std::string deep = R"({"a":)" + std::string(1'000'000, '[');
  CHECK(header_refusal(deep, 0).find("nested too deep") != std::string::npos);
}

// A header that is compared with itself would take hours here.
TEST_CASE("safetensors: a million tensors are read, and many are written" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  constexpr int count = 1'000'000;
  std::string header;
  for (int i = 0; i < count; ++i)
    header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                          i == 0 ? '{' : ',', i, i, i + 1);
  const SafetensorsFile opened = open_bytes(file_with(header + "}", count));
  CHECK(opened.tensors().size() == count);
  CHECK(opened.tensors().at("t999999").shape == Shape{1});

  const TemporaryFolder folder;
  std::vector<NamedTensor> many;
  for (int i = 0; i < 20'000; ++i) many.push_back({std::to_string(i), zeros({})});
  write_safetensors(folder.path / "many", many, {}, {}, Checksums::crc32);
  const SafetensorsFile file(folder.path / "many");
  CHECK(file.tensors().size() == many.size());
  file.verify();
}

TEST_CASE("safetensors: checksums find what changed" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "t";
  write_safetensors(path, {{"a", tensor(some_values(9), {9})}}, {{"k", "value"}});
  CHECK_THROWS_WITH_AS(SafetensorsFile(path).verify(), doctest::Contains("has no checksum"),
                       FileError);
  write_safetensors(path, {{"a", tensor(some_values(9), {9})}}, {{"k", "value"}}, {},
                    Checksums::crc32);
  const std::string whole = bytes_of(path);
  // As zlib's crc32() has it.
  const SafetensorsFile file(path);
  CHECK(
      file.metadata().at("crc32:a") ==
      fmt::format("{:08x}",
                  crc32(0, reinterpret_cast<const Bytef*>(whole.data() + whole.size() - 36), 36)));
  file.verify();
  const auto changed = [&](size_t at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 2);
    std::ofstream(folder.path / "changed", std::ios::binary) << bytes;
    SafetensorsFile(folder.path / "changed").verify();
  };
  CHECK_THROWS_WITH_AS(changed(whole.find("value")), doctest::Contains("checksum of the metadata"),
                       FileError);
  CHECK_THROWS_WITH_AS(changed(whole.size() - 1), doctest::Contains("checksum of tensor \"a\""),
                       FileError);
  // A text that moves from a name to its value changes the checksum of the metadata.
  const auto sum_of = [&](const Metadata& metadata) {
    write_safetensors(folder.path / "moved", {}, metadata, {}, Checksums::crc32);
    return SafetensorsFile(folder.path / "moved").metadata().at("crc32");
  };
  CHECK(sum_of({{"ab", "c"}}) != sum_of({{"a", "bc"}}));
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"\xff", zeros({1})}}),
                       doctest::Contains("must be UTF-8"), ValueError);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {}, {{"k", "\xff"}}),
                       doctest::Contains("must be UTF-8"), ValueError);
  CHECK(bytes_of(path) == whole);
}

TEST_CASE("safetensors: files that end early or claim huge headers" * doctest::test_suite("host")) {
  const auto bytes = file_with(good, 11);
  for (size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(open_bytes({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)}),
                    FileError);
  }
  for (const uint64_t length : {uint64_t{100'000'001}, UINT64_MAX, UINT64_MAX - 7}) {
    auto huge = bytes;
    std::memcpy(huge.data(), &length, sizeof length);
    CHECK_THROWS_WITH_AS(open_bytes(huge), doctest::Contains("the header may have"), FileError);
  }
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(SafetensorsFile(folder.path / "none"), doctest::Contains("cannot open"),
                       FileError);
  CHECK_THROWS_WITH_AS(SafetensorsFile(folder.path), doctest::Contains("must be a regular file"),
                       FileError);
  std::ofstream(folder.path / "empty").flush();
  CHECK_THROWS_WITH_AS(SafetensorsFile(folder.path / "empty"), doctest::Contains("too short"),
                       FileError);
}

TEST_CASE("safetensors: random damage is refused or harmless" * doctest::test_suite("host")) {
  DataRandom random(7);
  const auto original = file_with(good, 11);
  const std::string tokens[] = {"{",
                                "}",
                                "[",
                                "]",
                                ",",
                                ":",
                                "\"",
                                "-1",
                                "1e9",
                                "null",
                                "\\u0000",
                                "\"a\"",
                                "9223372036854775808",
                                "\"F32\"",
                                "[0,8]"};
  int accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    auto bytes = original;
    for (uint64_t edits = 1 + random.below(4); edits > 0; --edits) {
      const size_t at = random.below(bytes.size());
      const auto where = bytes.begin() + static_cast<ptrdiff_t>(at);
      switch (random.below(4)) {
        case 0:
          bytes[at] = static_cast<std::byte>(random.below(256));
          break;
        case 1:
          bytes[at] ^= static_cast<std::byte>(1u << random.below(8));
          break;
        case 2:
          bytes.erase(where, where + static_cast<ptrdiff_t>(1 + random.below(bytes.size() - at)));
          break;
        default: {
          const auto& token = tokens[random.below(std::size(tokens))];
          const auto* text = reinterpret_cast<const std::byte*>(token.data());
          bytes.insert(where, text, text + token.size());
        }
      }
      if (bytes.empty()) break;
    }
    // Half of the time the length is right, so that the damage is in the JSON.
    if (bytes.size() >= 8 + 11 && random.below(2)) {
      const uint64_t length = bytes.size() - 8 - 11;
      std::memcpy(bytes.data(), &length, sizeof length);
    }
    try {
      const SafetensorsFile file = open_bytes(bytes);
      ++accepted;
      for (const auto& [name, t] : file.tensors()) CHECK(t.offset + t.bytes <= bytes.size());
    } catch (const FileError&) {
    }
  }
  CHECK(accepted > 10);
  CHECK(accepted < 3000);
}

TEST_CASE("safetensors: writing refuses names that are taken, and keeps the old file on failure" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "t";
  write_safetensors(path, {{"a", zeros({2})}});
  const auto before = bytes_of(path);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"a", zeros({1})}, {"a", zeros({1})}}),
                       doctest::Contains("\"a\" again"), ValueError);
  {
    AtomicFile unfinished(path);
    unfinished.write("half");
    CHECK(bytes_of(path) == before);
  }
  CHECK(bytes_of(path) == before);
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
  CHECK_THROWS_WITH_AS(AtomicFile(path / "below"), doctest::Contains("cannot create"), FileError);
  CHECK(AtomicFile::is_temporary("dir/t.partial-a1B2c3"));
  CHECK_FALSE(AtomicFile::is_temporary("dir/t"));
  CHECK_FALSE(AtomicFile::is_temporary("dir.partial-a1B2c3/t.safetensors"));
}
