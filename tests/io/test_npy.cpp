// .npy files: written and read back, and files that lie.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <tuple>

#include "io/formats/npy.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using test::bytes_of;
using test::on_each_device;
using test::some_values;
namespace fs = std::filesystem;

TEST_CASE("npy: written, read back, refused") {
  on_each_device([] {
    const TemporaryFolder folder;
    const fs::path path = folder.path / "t.npy";
    const std::vector<int32_t> ints = {-5, 3};
    const std::vector<uint8_t> bytes = {0, 200, 7};
    const Tensor x = tensor(some_values(6), {2, 3});
    for (const Tensor& t : {x, transpose(x, 0, 1), cast(x, DType::f16), tensor(ints, {2, 1}),
                            tensor(bytes, {3}), tensor({1.5f}, {}), zeros({0, 3})}) {
      save_npy(path, t);
      CHECK(bytes_of(path).size() % 64 == t.bytes() % 64);
      const Tensor back = load_npy(path);
      CHECK(back.str() == t.str());
      CHECK(back.to_vector() == t.to_vector());
    }
    // NumPy has no bf16: its values are stored in f32, which holds them all.
    const Tensor brains = cast(x, DType::bf16);
    save_npy(path, brains);
    CHECK(load_npy(path).dtype() == DType::f32);
    CHECK(load_npy(path).to_vector() == brains.to_vector());
  });
  const TemporaryFolder folder;
  const fs::path path = folder.path / "t.npy";
  save_npy(path, zeros({2, 3}));
  const std::string text = bytes_of(path);
  const auto refused = [&](std::string changed, const std::string& from, const std::string& to) {
    if (!from.empty()) changed.replace(changed.find(from), from.size(), to);
    std::ofstream(path, std::ios::binary) << changed;
    CHECK_THROWS_AS(load_npy(path), FileError);
  };
  const size_t header_end = text.size() - 6 * sizeof(float);
  for (size_t size = 0; size < text.size(); ++size) {
    refused(text.substr(0, size), "", "");
    // Bytes that a header lacks are not read from after the file.
    if (size >= 12 && size < header_end)
      CHECK_THROWS_WITH_AS(load_npy(path), doctest::Contains("is cut short"), FileError);
  }
  refused(text, "<f4", "=f4");
  refused(text, "(2, 3)", "(2, 4)");
  refused(text, "(2, 3)", "(-2,3)");
  refused(text, "(2, 3), }    ", "(9999999999,9999999)");
  // A header that is said to go on behind the file, further than its last page.
  refused(text.substr(0, 8) + "\xff\x7f" + std::string(30, ' '), "", "");
  save_npy(path, zeros({3}));  // as Python writes a tuple of one
  CHECK(bytes_of(path).find("'shape': (3,), }") != std::string::npos);
  save_npy(path, zeros({0, 3}));
  const std::string none = bytes_of(path), shape = "(0, 3), }",
                    huge = "(0, 4294967296, 4294967296), }";
  refused(none, shape + std::string(huge.size() - shape.size(), ' '), huge);
}

TEST_CASE("npy: every order of bytes and elements, and every integer, as np.save writes them") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "t.npy";
  const auto load = [&](const std::string& descr, bool by_columns, const std::string& shape,
                        const std::string& data) {
    std::string header = fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descr,
                                     by_columns ? "True" : "False", shape);
    header.resize((10 + header.size() + 64) / 64 * 64 - 11, ' ');
    std::ofstream(path, std::ios::binary)
        << std::string("\x93NUMPY\1\0", 8) << char(header.size() + 1) << '\0' << header << '\n'
        << data;
    return load_npy(path);
  };
  const auto bytes = [](auto... values) { return std::string{static_cast<char>(values)...}; };
  const auto floats = [](std::vector<float> values, bool big_endian) {
    std::string data(4 * values.size(), '\0');
    std::memcpy(data.data(), values.data(), data.size());
    if (big_endian)
      for (size_t at = 0; at < data.size(); at += 4) std::reverse(&data[at], &data[at] + 4);
    return data;
  };
  on_each_device([&] {
    // np.arange(6).reshape(2, 3).T, and the same of three axes.
    for (const bool big : {false, true}) {
      const std::string descr = big ? "'>f4'" : "'<f4'";
      const Tensor x = load(descr, true, "(3, 2)", floats({0, 1, 2, 3, 4, 5}, big));
      CHECK(x.shape() == Shape{3, 2});
      CHECK(x.is_contiguous());
      CHECK(x.to_vector() == std::vector<float>{0, 3, 1, 4, 2, 5});
      CHECK(load(descr, false, "(6,)", floats({0, -1.5f, 2, 3e9f, 4, 5}, big)).to_vector() ==
            std::vector<float>{0, -1.5f, 2, 3e9f, 4, 5});
    }
    const Tensor cube = load("'|u1'", true, "(2, 2, 2)", bytes(0, 1, 2, 3, 4, 5, 6, 7));
    CHECK(cube.dtype() == DType::u8);
    CHECK(cube.to_vector() == std::vector<float>{0, 4, 2, 6, 1, 5, 3, 7});
    CHECK(load("'<i2'", true, "(0, 2)", "").shape() == Shape{0, 2});
    for (const auto& [descr, data, values] :
         {std::tuple{"'|i1'", bytes(255, 127), std::vector<int32_t>{-1, 127}},
          {"'<i2'", bytes(0, 128, 1, 2), {-32768, 513}},
          {"'>i2'", bytes(0, 128, 1, 2), {128, 258}},
          {"'<u2'", bytes(0, 128, 255, 255), {32768, 65535}},
          {"'>u2'", bytes(0, 128, 255, 255), {128, 65535}},
          {"'>i4'", bytes(255, 255, 255, 254, 0, 0, 1, 0), {-2, 256}},
          {"'<u4'", bytes(1, 0, 0, 0, 255, 255, 255, 127), {1, 2147483647}},
          {"'>i8'", bytes(255, 255, 255, 255, 255, 255, 255, 253, 0, 0, 0, 0, 0, 0, 0, 9), {-3, 9}},
          {"'<u8'", bytes(7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0), {7, 256}}}) {
      CAPTURE(descr);
      const Tensor x = load(descr, false, "(2,)", data);
      CHECK(x.dtype() == DType::i32);
      CHECK(x.to_ints() == values);
    }
    CHECK(load("'>f2'", false, "(1,)", bytes(0x3e, 0)).to_vector() == std::vector<float>{1.5f});
    CHECK(load("'>f8'", false, "(1,)", bytes(0xbf, 0xf8, 0, 0, 0, 0, 0, 0)).to_vector() ==
          std::vector<float>{-1.5f});
  });
  const auto fault = [&](const char* descr, const std::string& data) {
    return test::fault_of([&] { load(descr, false, "(1,)", data); });
  };
  CHECK(fault("[('x', '<f4'), ('shape', '<i2')]", std::string(6, '\0')).c_str() ==
        doctest::Contains("has the structured dtype \"[('x', '<f4'), ('shape', '<i2')]"));
  for (const char* descr : {"'<c8'", "'<U2'", "'|O'", "'<M8[ns]'", "'<f16'", "'f4'", "''"})
    CHECK(fault(descr, std::string(8, '\0')).c_str() ==
          doctest::Contains("has the unsupported dtype"));
  CHECK(fault("'<u4'", bytes(0, 0, 0, 128)).c_str() ==
        doctest::Contains("fit 32 bits, got 2147483648"));
}
