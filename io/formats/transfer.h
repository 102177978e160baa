// Copies host bytes to and from tensors, a piece at a time and with the conversions between file
// formats.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "../../core/files/file.h"
#include "../../core/tensor/tensor.h"

namespace rw {

// Element types of files, in safetensors' spelling.
size_t stored_size(std::string_view dtype);  // bytes per element; 0: unknown
std::string_view stored_name(DType dtype);   // "F32", "F16", "BF16", "I32", "U8"

// Calls `piece` with consecutive pieces of the tensor's elements as `dtype`, in row-major order:
// all but the last have 2^20 elements. Floats are converted to each other; one that 16 bits do not
// hold is a ValueError with `what`.
void download(const Tensor& source, DType dtype, const std::string& what,
              const std::function<void(std::span<const std::byte>)>& piece);

// Fills `target`, of any strides, with as many elements of a file. Throws FileError with `what` if
// the types do not go together, or a float is beyond a target of 16 bits: floats become any floats,
// and integers i32, which each of them must fit; U8 and BOOL also u8. In a file that is big-endian,
// the least significant byte of an element comes last; on all hosts here it comes first.
void upload(std::string_view dtype, const FilePart& part, const Tensor& target,
            const std::string& what, bool is_big_endian = false);
// Fills `target`, of floats and of any strides, with values that `fill` writes: those of elements
// `first` and following, in row-major order and in the same pieces. FileError as upload().
void upload_floats(const Tensor& target, const std::string& what,
                   const std::function<void(int64_t first, std::span<float> values)>& fill);

}  // namespace rw
