// Convolutions by oneDNN's primitives, on one thread for each group of images. The order of all
// sums is the same for any number of threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "backends/cpu/conv_shapes.h"
#include "backends/cpu/conv_slices.h"
#include "backends/cpu/halves.h"
#include "backends/cpu/one_thread.h"
#include "backends/cpu/prepared_call.h"
#include "backends/cpu/winograd.h"
#include "backends/cpu/work.h"
#include "shaders/params.h"

namespace rw::cpu {

namespace {

using dnnl::memory;
using kernels::Conv2dParams;

// Reorders weights on all threads; a piece is some outputs, or groups.
class Reorder {
 public:
  Reorder(const memory::desc& from, const memory::desc& to) {
    // A multiple of oneDNN's blocks, which have 16 to 64 or 48 lines.
    constexpr int64_t lines = 192;
    const memory::dims all = dims_of(from);
    memory::dims dims = all, begin(all.size(), 0);
    for (; begin[0] < all[0]; begin[0] += lines) {
      dims[0] = std::min(lines, all[0] - begin[0]);
      Piece piece{from.submemory_desc(dims, begin), to.submemory_desc(dims, begin), {}};
      piece.primitive = dnnl::reorder({engine(), piece.from, engine(), piece.to});
      pieces_.push_back(std::move(piece));
    }
  }

  void run(float* from, float* to) const {
    parallel_for(static_cast<int64_t>(pieces_.size()), [&](int64_t i) {
      const OneThread here;
      const Piece& piece = pieces_[static_cast<size_t>(i)];
      memory source(piece.from, engine(), from), target(piece.to, engine(), to);
      dnnl::stream stream(engine());
      piece.primitive.execute(stream, {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}});
      stream.wait();
    });
  }

 private:
  struct Piece {
    memory::desc from, to;
    dnnl::reorder primitive;
  };
  std::vector<Piece> pieces_;
};

// Returns the images of a piece of work: batches are cut into about `pieces` pieces, equal ones if
// possible, of `least` images or half of the batch.
int64_t images_of(int64_t batch, int64_t pieces, int64_t least = 1) {
  int64_t images = std::max(batch / pieces, std::clamp<int64_t>(least, 1, (batch + 1) / 2));
  while (batch % images != 0) --images;
  return images;
}

// Tells whether AVX2 is the best that the processor has.
bool has_avx2() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx2 || isa == dnnl::cpu_isa::avx2_vnni;
}

// Tells whether x and y are brought into the layout that the primitive likes best, blocks of
// channels. With AVX2, forward takes 0.75 to 0.95 of its time then, and the gradient of weights 0.7
// to 0.9; the gradient of x, and few channels, gain less than bringing them costs.
bool is_quicker_in_blocks(const KernelCall& call) {
  const auto p = call.params_as<Conv2dParams>();
  return has_avx2() && p.groups == 1 && call.kernel != "conv2d_dgrad" &&
         p.kernel_h * p.kernel_w > 1 && std::min(p.in_c, p.out_c) >= 64;
}

// Tells whether fewer multiplications are worth the transformations. With AVX2, 16 channels gain
// nothing, and more of them take 0.4 to 0.8 of the primitive's time.
bool is_quicker_in_winograds_form(const KernelCall& call) {
  const auto p = call.params_as<Conv2dParams>();
  const uint64_t in = p.in_c, out = p.out_c;
  return has_avx2() && in * out >= 12 * (in + out);
}

// The common part of all three: x, w and y in f32, as oneDNN wants them, x and y piece by piece.
class PreparedConvolution : public PreparedCall {
 protected:
  enum Operand : size_t { x, w, y };

  // `at` has the bindings of x, w and y.
  PreparedConvolution(const KernelCall& call, int64_t pieces, std::array<size_t, 3> at,
                      int64_t least_pixels = 1)
      : p_(call.params_as<Conv2dParams>()),
        images_(images_of(p_.batch, pieces, divide_up(least_pixels, int64_t{p_.out_h} * p_.out_w))),
        shapes_(p_, images_),
        wanted_(is_quicker_in_blocks(call) ? shapes_.in_any_layout() : shapes_),
        at_(at) {
    counts_ = {images_ * p_.in_h * p_.in_w * p_.in_c,
               int64_t{p_.out_c} * p_.kernel_h * p_.kernel_w * (p_.in_c / p_.groups),
               images_ * p_.out_h * p_.out_w * p_.out_c};
    for (const Operand i : {x, w, y}) {
      dtypes_[i] = call.bindings[at_[i]].dtype;
      if (dtypes_[i] == DType::f32) continue;
      const auto count = static_cast<uint64_t>(counts_[i]);
      floats_[i] = i == w ? scratch(count) : slot_scratch(count);
    }
  }

  int64_t pieces() const { return p_.batch / images_; }

  // Takes the layouts that the primitive has chosen for x and y.
  void take_layouts(const memory::desc& of_x, const memory::desc& of_y) {
    layouts_ = {of_x, shapes_.w, of_y};
    for (const Operand i : {x, y})
      if (layouts_[i] != plain(i))
        in_layout_[i] = slot_scratch(layouts_[i].get_size() / sizeof(float));
  }

  // The images of a piece as the primitive reads or makes them, which stay in `memory`.
  dnnl::memory images(const KernelCall& call, const Memory& memory, Operand i, int64_t piece,
                      bool is_read) const {
    float* from = plain_images(call, memory, i, piece);
    if (is_read && dtypes_[i] != DType::f32)
      to_floats(place(call, memory, i, piece), dtypes_[i], counts_[i], from);
    if (!in_layout_[i]) return {plain(i), engine(), from};
    const dnnl::memory laid(layouts_[i], engine(), floats_of_slot(memory, *in_layout_[i]));
    if (is_read) reorder({plain(i), engine(), from}, laid);
    return laid;
  }
  // Moves a piece that was made to its place.
  void store(const KernelCall& call, const Memory& memory, Operand i, int64_t piece,
             const dnnl::memory& made) const {
    float* to = plain_images(call, memory, i, piece);
    if (in_layout_[i]) reorder(made, {plain(i), engine(), to});
    if (dtypes_[i] != DType::f32)
      from_floats(to, counts_[i], dtypes_[i], place(call, memory, i, piece));
  }

  float* weights(const KernelCall& call, const Memory& memory) const {
    std::byte* from = place(call, memory, w, 0);
    if (dtypes_[w] == DType::f32) return reinterpret_cast<float*>(from);
    float* to = floats(memory, floats_[w]);
    all_to_floats(from, dtypes_[w], counts_[w], to);
    return to;
  }

  Conv2dParams p_;
  int64_t images_;
  Shapes shapes_, wanted_;

 private:
  const memory::desc& plain(Operand i) const { return i == x ? shapes_.x : shapes_.y; }

  // Returns where the images of a piece are as f32: in their place, or in scratch.
  float* plain_images(const KernelCall& call, const Memory& memory, Operand i,
                      int64_t piece) const {
    if (dtypes_[i] == DType::f32) return reinterpret_cast<float*>(place(call, memory, i, piece));
    return floats_of_slot(memory, floats_[i]);
  }
  static void reorder(dnnl::memory from, dnnl::memory to) {
    dnnl::stream stream(engine());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  }

  std::byte* place(const KernelCall& call, const Memory& memory, Operand i, int64_t piece) const {
    const uint64_t offset = call.params_as<Conv2dParams>().offset[at_[i]];
    return memory.bindings[at_[i]] +
           (offset + static_cast<uint64_t>(piece * counts_[i])) * size_of(dtypes_[i]);
  }

  std::array<size_t, 3> at_;
  std::array<int64_t, 3> counts_;  // of elements; for x and y, those of a piece
  std::array<DType, 3> dtypes_;
  std::array<uint64_t, 3> floats_{};
  std::array<memory::desc, 3> layouts_;
  std::array<std::optional<uint64_t>, 3> in_layout_;  // where the layout is not the plain one
};

// conv2d and conv2d_dgrad: `Primitive` makes the images of a piece from weights that all pieces
// read.
template <class Primitive>
class PreparedImages final : public PreparedConvolution {
 public:
  using Description = typename Primitive::primitive_desc;

  PreparedImages(const KernelCall& call, std::array<size_t, 3> at,
                 Description (*describe)(const Shapes&))
      : PreparedConvolution(call, 16, at),
        description_(describe(wanted_)),
        primitive_(description_),
        is_forward_(at[y] == 2) {
    const auto layout = [&](int forward, int backward) {
      return description_.query_md(dnnl::query::exec_arg_md, is_forward_ ? forward : backward);
    };
    take_layouts(layout(DNNL_ARG_SRC, DNNL_ARG_DIFF_SRC), layout(DNNL_ARG_DST, DNNL_ARG_DIFF_DST));
    if (description_.weights_desc() != shapes_.w_plain) {
      packed_ = scratch(description_.weights_desc().get_size() / sizeof(float));
      pack_.emplace(shapes_.w_plain, description_.weights_desc());
    }
    scratchpad_ = slot_scratch(description_.scratchpad_desc().get_size() / sizeof(float));
    place_slots(pieces());
  }

  void run(const KernelCall& call, const Memory& memory) const override {
    float* of_all = weights(call, memory);
    if (pack_) {
      pack_->run(of_all, floats(memory, packed_));
      of_all = floats(memory, packed_);
    }
    for_pieces(pieces(), [&](int64_t i) {
      const OneThread here;
      const dnnl::memory of_x = images(call, memory, x, i, is_forward_);
      const dnnl::memory of_y = images(call, memory, y, i, !is_forward_);
      dnnl::stream stream(engine());
      primitive_.execute(
          stream,
          {{is_forward_ ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, of_x},
           {DNNL_ARG_WEIGHTS, {description_.weights_desc(), engine(), of_all}},
           {is_forward_ ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, of_y},
           {DNNL_ARG_SCRATCHPAD,
            {description_.scratchpad_desc(), engine(), floats_of_slot(memory, scratchpad_)}}});
      stream.wait();
      store(call, memory, is_forward_ ? y : x, i, is_forward_ ? of_y : of_x);
    });
  }

 private:
  Description description_;
  Primitive primitive_;
  bool is_forward_;
  std::optional<Reorder> pack_;
  uint64_t packed_ = 0, scratchpad_ = 0;
};

// conv2d_wgrad: the gradients of pieces are added in the order of the pieces. Each piece moves a
// whole gradient, so it has enough pixels to be worth it.
class PreparedWeights final : public PreparedConvolution {
 public:
  explicit PreparedWeights(const KernelCall& call)
      : PreparedConvolution(call, 8, {0, 2, 1}, 192),
        description_(weight_gradient_of(wanted_)),
        primitive_(description_) {
    take_layouts(description_.src_desc(), description_.diff_dst_desc());
    size_ = description_.diff_weights_desc().get_size() / sizeof(float);
    part_ = slot_scratch(size_);
    scratchpad_ = slot_scratch(description_.scratchpad_desc().get_size() / sizeof(float));
    if (description_.diff_weights_desc() != shapes_.w_plain) {
      sum_ = scratch(size_);
      unpack_.emplace(description_.diff_weights_desc(), shapes_.w_plain);
    }
    place_slots(pieces());
  }

  void run(const KernelCall& call, const Memory& memory) const override {
    float* dw = weights(call, memory);
    float* sum = unpack_ ? floats(memory, sum_) : dw;
    std::atomic<int64_t> turn = 0;  // the piece whose part is added next
    for_pieces(pieces(), [&](int64_t i) {
      const OneThread here;
      float* part = i == 0 ? sum : floats_of_slot(memory, part_);
      dnnl::stream stream(engine());
      primitive_.execute(
          stream,
          {{DNNL_ARG_SRC, images(call, memory, x, i, true)},
           {DNNL_ARG_DIFF_DST, images(call, memory, y, i, true)},
           {DNNL_ARG_DIFF_WEIGHTS, {description_.diff_weights_desc(), engine(), part}},
           {DNNL_ARG_SCRATCHPAD,
            {description_.scratchpad_desc(), engine(), floats_of_slot(memory, scratchpad_)}}});
      stream.wait();
      // Pieces begin in their order, so some thread works on the piece that the others wait for.
      while (turn.load(std::memory_order_acquire) != i) std::this_thread::yield();
      for (uint64_t k = 0; i > 0 && k < size_; ++k) sum[k] += part[k];
      turn.store(i + 1, std::memory_order_release);
    });
    if (unpack_) unpack_->run(sum, dw);
  }

 private:
  dnnl::convolution_backward_weights::primitive_desc description_;
  dnnl::convolution_backward_weights primitive_;
  std::optional<Reorder> unpack_;
  uint64_t size_ = 0, part_ = 0, scratchpad_ = 0, sum_ = 0;
};

}  // namespace

std::shared_ptr<const PreparedCall> prepare_convolution(const KernelCall& call) try {
  const auto p = call.params_as<Conv2dParams>();
  if (p.batch == 0 || p.in_c == 0 || p.out_c == 0 || p.groups == 0) return nullptr;
  const OneThread here;
  if (is_quicker_in_winograds_form(call))
    if (auto winograd = prepare_winograd(call)) return winograd;
  if (auto slices = prepare_slices(call)) return slices;
  if (call.kernel == "conv2d")
    return std::make_shared<PreparedImages<dnnl::convolution_forward>>(
        call, std::array<size_t, 3>{0, 1, 2}, forward_of);
  if (call.kernel == "conv2d_dgrad")
    return std::make_shared<PreparedImages<dnnl::convolution_backward_data>>(
        call, std::array<size_t, 3>{2, 1, 0}, data_gradient_of);
  return std::make_shared<PreparedWeights>(call);
} catch (const dnnl::error&) {
  return nullptr;  // oneDNN has no form of this problem
}

}  // namespace rw::cpu
