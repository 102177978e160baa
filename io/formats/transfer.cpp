#include "io/formats/transfer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/tensor/launch.h"
#include "ops/ops.h"

namespace rw {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace {

constexpr int64_t piece_elements = 1 << 20;  // limits how much is in host memory at a time

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

float to_float(float x) {
  return x;
}
float to_float(double x) {
  return static_cast<float>(x);
}
float to_float(Half x) {
  return from_half(x.bits);
}
float to_float(Brain x) {
  return from_brain(x.bits);
}

void convert(float x, float& y) {
  y = x;
}
void convert(float x, Half& y) {
  y.bits = to_half(x);
}
void convert(float x, Brain& y) {
  y.bits = to_brain(x);
}

template <class Body>
void for_each_piece(int64_t total, const Body& body) {
  for (int64_t first = 0; first < total; first += piece_elements)
    body(first, std::min(piece_elements, total - first));
}

// Throws E for a finite value that would become infinite in 16 bits.
template <class E, class From, class To>
void convert_all(std::span<const std::byte> from, std::vector<To>& to, const std::string& what,
                 DType dtype) {
  for (size_t i = 0; i < to.size(); ++i) {
    From x;
    std::memcpy(&x, from.data() + i * sizeof(From), sizeof x);  // files align nothing
    convert(to_float(x), to[i]);
    if constexpr (!std::is_same_v<To, float>)
      if (std::isinf(to_float(to[i])) && std::isfinite(to_float(x)))
        fail<E>("dtype",
                "{} has a value that {} does not hold, {}: it would become infinite; take {}", what,
                name(dtype), to_float(x), dtype == DType::f16 ? "bf16 or f32" : "f32");
  }
}

// Elements of a file.
struct StoredElements {
  const FilePart& part;
  bool is_big_endian;

  // Calls `body(first, count, bytes)` with consecutive pieces, of elements of `size` bytes.
  template <class Body>
  void for_each_piece(size_t size, const Body& body) const {
    std::vector<std::byte> bytes;
    rw::for_each_piece(static_cast<int64_t>(part.size / size), [&](int64_t first, int64_t count) {
      bytes.resize(static_cast<size_t>(count) * size);
      part.read(static_cast<uint64_t>(first) * size, bytes);
      if (is_big_endian)
        for (auto at = bytes.begin(); at != bytes.end(); at += static_cast<ptrdiff_t>(size))
          std::reverse(at, at + static_cast<ptrdiff_t>(size));
      body(first, count, std::span<const std::byte>(bytes));
    });
  }
};

// Writes elements `first` and following of a dense tensor of floats.
template <class From>
void write_floats(const Tensor& target, int64_t first, int64_t count,
                  std::span<const std::byte> bytes, const std::string& what) {
  const auto write_as = [&]<class To>(std::vector<To> piece) {
    piece.resize(static_cast<size_t>(count));
    convert_all<FileError, From>(bytes, piece, what, target.dtype());
    write_elements(target, first, count, piece.data());
  };
  if (target.dtype() == DType::f32) write_as(std::vector<float>());
  if (target.dtype() == DType::f16) write_as(std::vector<Half>());
  if (target.dtype() == DType::bf16) write_as(std::vector<Brain>());
}

// False if the file's type is not one of floats.
bool upload_file_floats(std::string_view dtype, const StoredElements& stored, const Tensor& target,
                        const std::string& what) {
  const auto upload_as = [&]<class From>(From) {
    stored.for_each_piece(sizeof(From), [&](int64_t first, int64_t count, auto bytes) {
      write_floats<From>(target, first, count, bytes, what);
    });
    return true;
  };
  if (dtype == "F64") return upload_as(double());
  if (dtype == "F32") return upload_as(float());
  if (dtype == "F16") return upload_as(Half());
  if (dtype == "BF16") return upload_as(Brain());
  return false;
}

// False if the file's type is not one of integers.
bool upload_integers(std::string_view dtype, const StoredElements& stored, const Tensor& target,
                     const std::string& what) {
  const auto upload_as = [&]<class From>(From x) {
    stored.for_each_piece(sizeof x, [&](int64_t first, int64_t count, auto bytes) {
      std::vector<int32_t> piece;
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(&x, bytes.data() + static_cast<size_t>(i) * sizeof x, sizeof x);
        check<FileError>(std::in_range<int32_t>(x), "read",
                         "{} must have values that fit 32 bits, got {} at index {}", what, x,
                         first + i);
        piece.push_back(static_cast<int32_t>(x));
      }
      write_elements(target, first, count, piece.data());
    });
    return true;
  };
  if (dtype == "I8") return upload_as(int8_t());
  if (dtype == "I16") return upload_as(int16_t());
  if (dtype == "I32") return upload_as(int32_t());
  if (dtype == "I64") return upload_as(int64_t());
  if (dtype == "U8") return upload_as(uint8_t());
  if (dtype == "U16") return upload_as(uint16_t());
  if (dtype == "U32") return upload_as(uint32_t());
  if (dtype == "U64") return upload_as(uint64_t());
  return false;
}

void upload_dense(std::string_view dtype, const StoredElements& stored, const Tensor& target,
                  const std::string& what) {
  const bool same =
      dtype == stored_name(target.dtype()) || (dtype == "BOOL" && target.dtype() == DType::u8);
  if (same)
    return stored.for_each_piece(size_of(target.dtype()),
                                 [&](int64_t first, int64_t count, auto bytes) {
                                   write_elements(target, first, count, bytes.data());
                                 });
  const bool fits = is_float(target.dtype()) ? upload_file_floats(dtype, stored, target, what)
                                             : target.dtype() == DType::i32 &&
                                                   upload_integers(dtype, stored, target, what);
  check<FileError>(fits, "read", "{} is needed as {}, got {}", what, name(target.dtype()), dtype);
}

// Calls `body` with a dense tensor, whose values then become those of `target`.
template <class Body>
void fill_dense(const Tensor& target, const Body& body) {
  const NoGrad guard;
  if (target.is_contiguous()) return body(target);
  const PurposeScope purpose(Purpose::workspace);
  const Tensor dense = empty(target.shape(), target.dtype(), target.device().shared_from_this());
  body(dense);
  copy_into(dense, target);
}

}  // namespace

size_t stored_size(std::string_view dtype) {
  for (const char* type : {"F64", "I64", "U64"})
    if (dtype == type) return 8;
  for (const char* type : {"F32", "I32", "U32"})
    if (dtype == type) return 4;
  for (const char* type : {"F16", "BF16", "I16", "U16"})
    if (dtype == type) return 2;
  for (const char* type : {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"})
    if (dtype == type) return 1;
  return 0;
}

std::string_view stored_name(DType dtype) {
  constexpr std::string_view names[] = {"F32", "F16", "BF16", "I32", "U8"};
  return names[static_cast<int>(dtype)];
}

void download(const Tensor& source, DType dtype, const std::string& what,
              const std::function<void(std::span<const std::byte>)>& piece) {
  check<DTypeError>(dtype == source.dtype() || (is_float(dtype) && is_float(source.dtype())),
                    "write", "cannot convert {} to {}", name(source.dtype()), name(dtype));
  const NoGrad guard;
  const Tensor dense = contiguous(source);
  std::vector<std::byte> bytes;
  for_each_piece(dense.numel(), [&](int64_t first, int64_t count) {
    bytes.resize(static_cast<size_t>(count) * size_of(dense.dtype()));
    read_elements(dense, first, count, bytes.data());
    if (dtype == dense.dtype()) return piece(bytes);
    const auto give = [&]<class To>(std::vector<To> values) {
      values.resize(static_cast<size_t>(count));
      if (dense.dtype() == DType::f32) convert_all<ValueError, float>(bytes, values, what, dtype);
      if (dense.dtype() == DType::f16) convert_all<ValueError, Half>(bytes, values, what, dtype);
      if (dense.dtype() == DType::bf16) convert_all<ValueError, Brain>(bytes, values, what, dtype);
      piece(std::as_bytes(std::span(values)));
    };
    if (dtype == DType::f32) give(std::vector<float>());
    if (dtype == DType::f16) give(std::vector<Half>());
    if (dtype == DType::bf16) give(std::vector<Brain>());
  });
}

void upload(std::string_view dtype, const FilePart& part, const Tensor& target,
            const std::string& what, bool is_big_endian) {
  check<FileError>(part.size == static_cast<uint64_t>(target.numel()) * stored_size(dtype), "read",
                   "{} must have {} elements of {}, got {} bytes", what, target.numel(), dtype,
                   part.size);
  fill_dense(target, [&](const Tensor& dense) {
    upload_dense(dtype, {part, is_big_endian}, dense, what);
  });
}

void upload_floats(const Tensor& target, const std::string& what,
                   const std::function<void(int64_t first, std::span<float> values)>& fill) {
  check<FileError>(is_float(target.dtype()), "read", "{} is needed as {}, got floats", what,
                   name(target.dtype()));
  fill_dense(target, [&](const Tensor& dense) {
    std::vector<float> values;
    for_each_piece(dense.numel(), [&](int64_t first, int64_t count) {
      values.resize(static_cast<size_t>(count));
      fill(first, values);
      write_floats<float>(dense, first, count, std::as_bytes(std::span(values)), what);
    });
  });
}

}  // namespace rw
