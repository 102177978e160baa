// .npy files: written and read back, and files that lie.
#include <doctest/doctest.h>

#include <fstream>

#include "io/formats/npy.h"
#include "tests/fixtures/file_fixture.h"
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
  refused(text, "<f4", ">f4");
  refused(text, "False", "True ");
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
