// Shared by the ways of computing a product or a convolution.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../../core/base/error.h"
#include "../../../shaders/params.h"
#include "../device/caps.h"
#include "../device/matrix_choice.h"
#include "../device/shader_table.h"
#include "../passes/passes.h"

namespace rw::vulkan {

// The parameters of a product or a convolution.
template <class Params>
Params params_of(const KernelCall& call) {
  check<ValueError>(call.params.size() == sizeof(Params) && call.bindings.size() == 3, call.kernel,
                    "must have 3 bindings and {} bytes of parameters, got {} and {}",
                    sizeof(Params), call.bindings.size(), call.params.size());
  return call.params_as<Params>();
}

// The most loop iterations of an invocation: stock lavapipe silently leaves all loops after 65535
// of them, counted over the whole kernel.
inline constexpr uint32_t kMaxLoop = 32768;

// Returns the number of elements in 16 bytes.
constexpr uint32_t word_of(DType t) {
  return 16 / static_cast<uint32_t>(size_of(t));
}

// Returns the most elements of a result that the tiles of CPU drivers store at a time.
constexpr uint32_t most_stores(DType factors, DType result) {
  return std::min(word_of(factors), word_of(result));
}

// The kernels that make tiles of a matrix product: their names and sizes.
struct TileFamily {
  std::string suffix;             // "subgroup", "tiled.TILE64": of the module's name
  uint32_t tile_rows, tile_cols;  // of one workgroup
  uint32_t step;                  // values of k per round
  uint32_t lanes = 0;             // across columns; 0: not a variant of this family
  bool cooperative = false;       // matrix_cooperative.cpp

  std::string kernel(std::string_view base) const { return std::string(base) + "_" + suffix; }
  // Returns the constants of a convolution: which factors lie in whole words, and, if these tiles
  // take it, the number of elements of a result that may be stored at a time (1, 2, 4 or 8).
  std::vector<uint32_t> variant(uint32_t stores, std::vector<uint32_t> words) const {
    if (lanes) words.insert(words.begin(), {lanes, stores});
    return words;
  }
};

// A product, or the sums of a convolution, as a family of tiles sees it.
struct TileProblem {
  DType dtype;  // of the factors
  uint64_t rows;
  uint32_t cols, k, products = 1;
  uint32_t most_tile = 128;  // of the GPUs' tiles
  Choice choice = {};
  bool may_split = true;  // sums over k may be made in parts

  uint64_t tiles(const TileFamily& f) const {
    return divide_up(rows, f.tile_rows) * divide_up(cols, f.tile_cols) * products;
  }
};

// Returns the best family, or the chosen one: that of CPU drivers if they have what it needs, else
// the GPUs' tiles of the best size that fits the device.
bool takes_subgroup_tiles(const Caps& caps, const Choice& choice);  // the CPU drivers' family
TileFamily tile_family(const Caps& caps, const TileProblem& problem);

// ---- the GPUs' tiles: matrix_tiled.cpp ----
bool fits_tiled(const Caps& caps);  // any size of them
TileFamily tiled_family(const Caps& caps, const TileProblem& problem);
double tiled_cost(const Caps& caps, const TileProblem& problem);  // seconds, roughly
// The constants of gemm_tiled; `is_split` says that c is in parts of its own.
std::vector<uint32_t> tiled_variant(const kernels::MatmulParams& p, DType t, bool is_split);
bool may_run_tiled(std::string_view module, const Caps& caps);  // one of *_tiled.TILE*

// ---- the same with cooperative matrices, for factors of 16 bits: matrix_cooperative.cpp ----
bool fits_cooperative(const Caps& caps, DType t, uint32_t tile);
TileFamily cooperative_family(DType t, uint32_t tile);
bool may_run_cooperative(std::string_view module, const Caps& caps);
// Tells whether a module for 16-bit floats takes bf16 (`brain`) or f16; most take both.
bool is_for_halves(std::string_view module, bool brain);

// The parts that sums over k should have so that there are enough workgroups, or as chosen; a part
// has a multiple of the family's step and at most kMaxLoop values.
struct Split {
  uint32_t parts, chunk;
};
Split split_k(const Caps& caps, const TileProblem& problem, const TileFamily& family);

// Tells whether a matrix stored in lines `step` apart can be read in words of `word` elements.
bool in_words(uint32_t word, uint32_t offset, uint32_t step, uint32_t lines,
              const uint32_t batch[2]);
// Tells whether a product or a convolution may run this module here. True for modules of other
// kernels.
bool may_run(std::string_view module, const Caps& caps);

// Computes c = alpha a b + beta c with p.offset etc. as in the contract, as chosen or else by the
// cheapest variant.
void add_matmul(Passes& passes, const Caps& caps, const Choice& choice,
                const kernels::MatmulParams& p, Operand a, Operand b, Operand c);
void add_conv(Passes& passes, const Caps& caps, const Choice& choice, std::string_view kernel,
              const kernels::Conv2dParams& p, Operand a, Operand b, Operand c);

// Tells whether a convolution, or a gradient of one, is a product of matrices, and which one; if
// the second result is set, the second of the two bindings that are read comes first.
bool is_pointwise(const kernels::Conv2dParams& p);
std::pair<kernels::MatmulParams, bool> pointwise_product(std::string_view kernel,
                                                         const kernels::Conv2dParams& p);

// Computes y[z, i, j] = alpha * (sum of p.parts parts of x) + beta * y.
void add_reduce(Passes& passes, kernels::MatrixReduceParams p, Operand x, Operand y);
// Packs x in panels of p.panel columns, for `batches` matrices.
Operand add_pack(Passes& passes, kernels::MatrixPackParams p, uint32_t batches, Operand x);

}  // namespace rw::vulkan
