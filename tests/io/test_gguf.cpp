// GGUF: blocks as the gguf package has them, files written and read back, and files that lie.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "data/base/files.h"
#include "io/formats/gguf.h"
#include "ops/ops.h"
#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/optim_fixture.h"

namespace rw::test {

namespace {

struct GoldenBlocks {
  std::string type;
  std::vector<uint8_t> blocks;
  std::vector<float> values;
};

#include "tests/goldens/gguf.inc"

// The bytes of a file, one number or text after the other.
struct FileBytes {
  std::string bytes;

  template <class T>
  FileBytes& add(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  FileBytes& text(const std::string& value) {
    add(static_cast<uint64_t>(value.size()));
    bytes += value;
    return *this;
  }
  FileBytes& fill(size_t alignment) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
};

FileBytes start(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
  FileBytes file;
  file.bytes = "GGUF";
  return file.add(version).add(tensors).add(entries);
}

FileBytes& add_tensor(FileBytes& file, const std::string& name, const std::vector<uint64_t>& sizes,
                      uint32_t type, uint64_t offset) {
  file.text(name).add(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) file.add(size);
  return file.add(type).add(offset);
}

// A file with one tensor of 256 columns per row.
FileBytes file_of(const GgufTypeInfo& type, uint64_t rows, const std::string& data) {
  FileBytes file = start(1, 0);
  add_tensor(file, "t", {256, rows}, type.number, 0).fill(32);
  file.bytes += data;
  return file;
}

// The message with which the file is refused, or "accepted".
std::string file_refusal(const FileBytes& file) {
  const TemporaryFolder folder;
  write_file(folder.path / "hostile.gguf", std::string_view(file.bytes));
  try {
    GgufFile(folder.path / "hostile.gguf");
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

void check_gguf_refused(const FileBytes& file, const char* why) {
  const std::string message = file_refusal(file);
  CAPTURE(message);
  CAPTURE(why);
  CHECK(message.find(why) != std::string::npos);
  CHECK(message.find("hostile.gguf") != std::string::npos);
}

}  // namespace

TEST_CASE("gguf: blocks have the values that the gguf package gives them, bit for bit") {
  on_each_device([] {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path / "blocks.gguf";
    for (const auto& [type, blocks, values] : golden_blocks) {
      CAPTURE(type);
      // Three rows, of which the middle one has all bits zero.
      const std::string row(blocks.begin(), blocks.end());
      const std::string data = row + std::string(row.size(), '\0') + row;
      write_file(path, std::string_view(file_of(*find_gguf_type(type), 3, data).bytes));
      const GgufFile file(path);
      const Tensor whole = empty({3, 256});
      file.read("t", whole);
      std::vector<float> expected = values;
      expected.resize(512);
      expected.insert(expected.end(), values.begin(), values.end());
      CHECK(whole.to_vector() == expected);
      // Targets that are not dense, and 16 bits.
      const Tensor turned = transpose(empty({256, 3}), 0, 1);
      file.read("t", turned);
      CHECK(turned.to_vector() == expected);
      for (const DType dtype : {DType::f16, DType::bf16}) {
        const Tensor half = empty({3, 256}, dtype);
        file.read("t", half);
        CHECK(half.to_vector() == cast(whole, dtype).to_vector());
      }
    }
  });
}

TEST_SUITE_BEGIN("host");

TEST_CASE("gguf: types are found by number and by name in any case") {
  CHECK(find_gguf_type("q8_0")->number == static_cast<uint32_t>(GgufType::q8_0));
  CHECK(find_gguf_type("BF16")->number == static_cast<uint32_t>(GgufType::bf16));
  CHECK(find_gguf_type("Q4") == nullptr);
  CHECK(find_gguf_type(4) == nullptr);
  for (const GgufType type : {GgufType::f32, GgufType::f16, GgufType::q4_0, GgufType::q4_1,
                              GgufType::q5_0, GgufType::q5_1, GgufType::q8_0, GgufType::q4_k,
                              GgufType::q5_k, GgufType::q6_k, GgufType::bf16})
    CHECK((gguf_type_info(type).block_elements == 1) != bool(gguf_type_info(type).blocks));
}

TEST_CASE("gguf: what is written is read back") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "new" / "t.gguf";
  std::vector<std::string> words;
  for (int i = 0; i < 100000; ++i) words.push_back(std::to_string(i * 7919));
  words[3] = std::string("\0\xff", 2);  // tokens may be any bytes
  const GgufMetadata metadata = {
      {"u8", uint8_t{200}},
      {"i8", int8_t{-100}},
      {"u16", uint16_t{60000}},
      {"i16", int16_t{-30000}},
      {"u32", uint32_t{4000000000}},
      {"i32", int32_t{-2000000000}},
      {"f32", 1.5f},
      {"eps", 1e-6f},
      {"flag", true},
      {"text", std::string("a\n\"b\"")},
      {"u64", uint64_t{1} << 63},
      {"i64", int64_t{-1} << 40},
      {"f64", 1e300},
      {"words", GgufList(std::move(words))},
      {"flags", GgufList(std::vector<bool>{true, false, true})},
      {"types", GgufList(std::vector<int32_t>{1, -2})},
      {"scores", GgufList(std::vector<float>{})},
  };
  const Tensor x = tensor(some_values(24), {2, 3, 4});
  const Tensor rows = tensor(some_values(128), {2, 64});
  GgufMetadata aligned = metadata;
  aligned["general.alignment"] = uint32_t{64};  // of another file; this one has its own
  write_gguf(path,
             {{"plain", x, GgufType::f32},
              {"turned", permute(x, {2, 0, 1}), GgufType::f16},
              {"brain", cast(x, DType::f16), GgufType::bf16},
              {"blocks", transpose(rows, 0, 1).detach(), GgufType::f32},
              {"rounded", rows, GgufType::q8_0},
              {"none", zeros({0, 4}), GgufType::f32},
              {"other", x, GgufType::f32, Shape{6, 4}}},
             aligned);
  const GgufFile file(path);
  CHECK(file.metadata() == metadata);
  CHECK(file.integer("u32", 0, 5'000'000'000) == 4'000'000'000);
  CHECK(file.integer("i8", -128, 0) == -100);
  CHECK(file.number("f32", 0, 2) == 1.5);
  CHECK(file.number("u16", 0, 1e5) == 60000);
  CHECK(file.number("eps", 0, 1) == 1e-6);
  CHECK(file.flag("flag"));
  CHECK(file.list<bool>("flags") == std::vector<bool>{true, false, true});
  CHECK(file.list<std::string>("words").size() == 100000);
  REQUIRE(file.tensors().size() == 7);
  CHECK(file.tensors().at("other").shape == Shape{6, 4});
  CHECK(file.tensors().at("plain").shape == Shape{2, 3, 4});
  const auto back = [&](const char* name, const Shape& shape) {
    const Tensor target = empty(shape);
    file.read(name, target);
    return target.to_vector();
  };
  const auto rounded = [](const Tensor& t, DType dtype) { return cast(t, dtype).to_vector(); };
  CHECK(back("plain", {2, 3, 4}) == x.to_vector());
  CHECK(back("turned", {4, 2, 3}) == rounded(permute(x, {2, 0, 1}), DType::f16));
  CHECK(back("brain", {2, 3, 4}) == rounded(cast(x, DType::f16), DType::bf16));
  CHECK(back("blocks", {64, 2}) == transpose(rows, 0, 1).to_vector());
  CHECK(back("none", {0, 4}).empty());
  CHECK(back("other", {6, 4}) == x.to_vector());
  CHECK(back("other", {2, 3, 4}) == x.to_vector());
  const std::vector<float> exact = rows.to_vector(), close = back("rounded", {2, 64});
  for (size_t i = 0; i < exact.size(); ++i) CHECK(std::abs(exact[i] - close[i]) < 0.02);
  for (const auto& [name, t] : file.tensors()) CHECK(t.offset % 32 == 0);
}

TEST_CASE("gguf: tensors of several pieces") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const int64_t rows = (int64_t{1} << 15) + 3;
  const Tensor x = tensor(some_values(64 * rows), {rows, 64});
  write_gguf(folder.path / "x", {{"x", x, GgufType::q8_0}}, {});
  const Tensor all = empty({rows, 64}), last = empty({1, 64});
  GgufFile(folder.path / "x").read("x", all);
  write_gguf(folder.path / "last", {{"x", slice(x, 0, rows - 1, rows), GgufType::q8_0}}, {});
  GgufFile(folder.path / "last").read("x", last);
  CHECK(slice(all, 0, rows - 1, rows).to_vector() == last.to_vector());
  CHECK(max(abs(all - x), {0, 1}).item() < 0.02);
}

TEST_CASE("gguf: values of another kind, tensors of another shape, types that are not read") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "t.gguf";
  write_gguf(path, {{"t", zeros({2, 3}), GgufType::f32}},
             {{"big", uint64_t{1} << 63}, {"text", std::string("x")}, {"flag", true}});
  const GgufFile file(path);
  const auto message = [](auto&& body) -> std::string {
    try {
      body();
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto expect = [&](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  expect(message([&] { file.integer("big", 0, INT64_MAX); }), "got 9223372036854775808");
  expect(message([&] { file.integer("text", 0, 9); }), "[0, 9], got \"x\"");
  expect(message([&] { file.integer("flag", 0, 9); }), "whole number");
  expect(message([&] { file.number("flag", 0, 9); }), "got true");
  expect(message([&] { file.flag("text"); }), "true or false");
  expect(message([&] { file.text("flag"); }), "must be a text");
  expect(message([&] { file.list<float>("text"); }), "list of another type");
  expect(message([&] { file.text("none"); }), "has no \"none\"");
  expect(message([&] { file.read("t", zeros({3, 2})); }), "must have the shape (3, 2), got (2, 3)");
  expect(message([&] { file.read("t", zeros({2, 3}, DType::u8)); }), "is needed as u8, got F32");
  expect(message([&] { file.read("u", zeros({2, 3})); }), "no tensor \"u\"");
  write_file(path, std::string_view(file_of(*find_gguf_type("Q2_K"), 1, std::string(84, 1)).bytes));
  expect(message([&] { GgufFile(path).read("t", zeros({1, 256})); }), "got Q2_K");
  write_file(path,
             std::string_view(file_of(*find_gguf_type("Q4_K"), 1, std::string(144, 1)).bytes));
  expect(message([&] { GgufFile(path).read("t", zeros({1, 256}, DType::u8)); }), "is needed as u8");
}

TEST_CASE("gguf: what the format cannot hold is refused, and the old file stays") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "t.gguf";
  const Tensor x = full({2, 32}, 1);
  write_gguf(path, {{"x", x, GgufType::f32}}, {});
  const std::string before = bytes_of(path);
  const std::string longest(63, 'n');
  for (const std::vector<GgufSource>& bad : {
           std::vector<GgufSource>{{longest + "n", x, GgufType::f32}},
           {{"x", x, GgufType::f32}, {"x", x, GgufType::f16}},
           {{"x", x, GgufType::q4_k}},
           {{"x", full({}, 1), GgufType::f32}},
           {{"x", full({1, 1, 1, 1, 1}, 1), GgufType::f32}},
           {{"x", full({2}, 1, DType::i32), GgufType::f32}},
           {{"x", full({2, 33}, 1), GgufType::q8_0}},
           {{"x", x, GgufType::f32, Shape{2, 31}}},
           {{"x", full({2, 32}, INFINITY), GgufType::q8_0}},
       })
    CHECK_THROWS_AS(write_gguf(path, bad, {}), ValueError);
  write_gguf(folder.path / "new", {{"x", x, GgufType::q8_0}}, {});
  const std::string after = bytes_of(folder.path / "new");
  int calls = 0;
  {
    const FileFaults counting;
    write_gguf(path, {{"x", x, GgufType::q8_0}}, {});
    calls = counting.calls();
  }
  for (int at = 0; at < calls; ++at) {
    write_file(path, std::string_view(before));
    const FileFaults faults({.at = at, .error = ENOSPC});
    const bool failed = fails([&] { write_gguf(path, {{"x", x, GgufType::q8_0}}, {}); });
    const std::string now = bytes_of(path);
    CHECK((now == after || (failed && now == before)));
  }
  CHECK(entries(folder.path) == 2);
}

TEST_CASE("gguf: headers that lie are refused") {
  const uint64_t huge = uint64_t{1} << 62;
  const auto entry = [](const std::string& key, uint32_t type) {
    return start(0, 1).text(key).add(type);
  };
  CHECK(file_refusal(start(0, 0)) == "accepted");
  CHECK(file_refusal(start(0, 0, 2)) == "accepted");
  check_gguf_refused(FileBytes{""}, "cut short");
  check_gguf_refused(FileBytes{"GGUX1234567890123456"}, "is not a GGUF file");
  check_gguf_refused(start(0, 0, 1), "version 2 or 3");
  check_gguf_refused(start(0, 0, 0x03000000), "version 2 or 3, little-endian, got 0x3000000");
  check_gguf_refused(start(huge, 0), "must contain tensors");
  check_gguf_refused(start(0, huge), "must contain metadata");
  check_gguf_refused(entry("k", 8).add(huge), "must contain a text");
  check_gguf_refused(entry("k", 8).add(uint64_t{9}).add(uint64_t{0}), "must contain a text");
  check_gguf_refused(start(0, 2).text("k").add(uint32_t{7}).add(uint8_t{1}), "cut short");
  check_gguf_refused(entry("k", 13).add(huge), "a type of 0 to 12, got 13");
  check_gguf_refused(entry("k", 7).add(uint8_t{2}), "booleans must be 0 or 1, got 2");
  check_gguf_refused(entry("k", 9).add(uint32_t{4}).add(uint64_t{1'000'000'000}),
                     "must contain a list");
  check_gguf_refused(entry("k", 9).add(uint32_t{8}).add(huge), "must contain a list");
  check_gguf_refused(entry("k", 9).add(uint32_t{9}).add(uint64_t{1}),
                     "a type of 0 to 12 that is not 9");
  check_gguf_refused(entry("k", 9).add(uint32_t{77}).add(uint64_t{1}), "that is not 9, got 77");
  check_gguf_refused(start(0, 2)
                         .text("k\n")
                         .add(uint32_t{0})
                         .add(uint8_t{1})
                         .text("k\n")
                         .add(uint32_t{0})
                         .add(uint8_t{1}),
                     R"("k\n" twice)");
}

TEST_CASE("gguf: tensors that lie are refused") {
  const auto one = [](const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset,
                      size_t data) {
    FileBytes file = start(1, 0);
    add_tensor(file, "t", sizes, type, offset).fill(32);
    file.bytes += std::string(data, '\1');
    return file;
  };
  CHECK(file_refusal(one({2, 3}, 0, 0, 24)) == "accepted");
  CHECK(file_refusal(one({2, 3}, 0, 32, 56)) == "accepted");  // a gap harms nobody
  CHECK(file_refusal(one({}, 0, 0, 4)) == "accepted");
  CHECK(file_refusal(one({32, 0}, 2, 0, 0)) == "accepted");
  check_gguf_refused(one({2, 3}, 0, 0, 23), "24 bytes from 0 on within the data, got 23");
  check_gguf_refused(one({2, 3}, 0, 32, 24), "within the data");
  check_gguf_refused(one({2, 3}, 0, UINT64_MAX - 31, 24), "within the data");
  check_gguf_refused(one({2, 3}, 0, 4, 99), "must begin at a multiple of 32, got 4");
  check_gguf_refused(one({2, 3}, 4, 0, 24), "unknown type 4");
  check_gguf_refused(one({2, 3}, 1u << 31, 0, 24), "unknown type 2147483648");
  check_gguf_refused(one({33}, 2, 0, 99), "whole blocks of 32 Q4_0, got 33");
  check_gguf_refused(one({1, 1, 1, 1, 1}, 0, 0, 24), "at most 4 dimensions, got 5");
  check_gguf_refused(one({1u << 31, 1u << 31, 1u << 31}, 0, 0, 24), "is too large");
  check_gguf_refused(one({0, uint64_t{1} << 62}, 0, 0, 24), "is too large");
  check_gguf_refused(one({UINT64_MAX}, 0, 0, 24), "is too large");
  FileBytes twice = start(2, 0);
  add_tensor(twice, "t", {1}, 0, 0);
  check_gguf_refused(add_tensor(twice, "t", {1}, 0, 32).fill(128), "names tensor \"t\" twice");
  FileBytes overlap = start(2, 0);
  add_tensor(overlap, "a", {9}, 0, 0);
  check_gguf_refused(add_tensor(overlap, "b", {1}, 0, 32).fill(256), "\"a\" and \"b\" overlap");
  for (const uint32_t alignment : {0u, 48u}) {
    FileBytes file = start(1, 1).text("general.alignment").add(uint32_t{4}).add(alignment);
    check_gguf_refused(add_tensor(file, "t", {1}, 0, 0).fill(256), "power of two");
  }
  FileBytes wide = start(1, 1).text("general.alignment").add(uint32_t{4}).add(uint32_t{128});
  CHECK(file_refusal(add_tensor(wide, "t", {1}, 0, 0).fill(128).add(1.0f)) == "accepted");
  FileBytes text = start(0, 1).text("general.alignment").add(uint32_t{8}).text("32");
  check_gguf_refused(text.fill(128), "power of two");
}

TEST_CASE("gguf: a file that is cut anywhere is one error") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  write_gguf(folder.path / "whole", {{"x", full({2, 32}, 1), GgufType::q8_0}},
             {{"words", GgufList(std::vector<std::string>{"a", "bc"})}, {"flag", true}});
  const std::string whole = bytes_of(folder.path / "whole");
  CHECK(file_refusal(FileBytes{whole}) == "accepted");
  // The last tensor is filled up to 32 bytes, and nobody needs the filling.
  const size_t needed = whole.size() - (96 - 68);
  for (size_t size = 0; size < needed; ++size) {
    CAPTURE(size);
    CHECK(file_refusal(FileBytes{whole.substr(0, size)}) != "accepted");
  }
}

TEST_SUITE_END();

}  // namespace rw::test
