// Module: a piece of a model with named parameters, buffers and children.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/tensor/tensor.h"

namespace rw {

// Throws ValueError if a size is not positive: "[Linear] in_features must be positive, got 0".
void check_positive(const char* module,
                    std::initializer_list<std::pair<const char*, int64_t>> sizes);

// Children are value members that the constructor registers, so a module never moves.
class Module {
 public:
  // A module below another one, by its dotted name.
  struct Named {
    std::string name;
    Module* module;
  };

  Module();
  virtual ~Module() = default;
  Module(Module&) = delete;  // not const, as it would then be a candidate for MaxPool2d({2, 3})
  Module& operator=(const Module&) = delete;

  // Returns the module's output for x, taken by value: a caller that moves its last handle in lets
  // the first op overwrite it. Modules with other inputs have a forward of their own; this one
  // throws ValueError for them.
  virtual Tensor forward(Tensor x);
  // forward(x). With $REWIND_RECOMPUTE=block, a block is a checkpoint segment in training. A block
  // is a module inside another whose children have no children; the outermost ones count.
  Tensor operator()(Tensor x);

  // Returns the parameters in the order of registration: own tensors first, then the children's. It
  // also writes the names into the tensors, for error messages.
  std::vector<NamedTensor> named_parameters() const;
  std::vector<Tensor> parameters() const;          // the same without names: for optimizers
  std::vector<NamedTensor> named_buffers() const;  // tensors that are saved and not trained
  // Returns the parameters whose last axis comes second in files, as in PyTorch's convolutions.
  std::vector<NamedTensor> channels_last_parameters() const;
  int64_t parameter_count() const;  // elements

  // Returns the modules below this one, each before those below it. The name of a part is that of
  // the module that it is part of, and packed projections lack the underscore of their parameters.
  std::vector<Named> named_modules() const;
  // Calls body(module) for every module below this one and then for this one, the innermost first.
  void apply(const std::function<void(Module&)>& body);
  // Sets whether parameters of this module and below collect gradients; false freezes them.
  // Optimizers leave out parameters that were frozen when the optimizer was made.
  void requires_grad_(bool on = true);
  // Changes the parameters of this module and below to `dtype` in place, rounding their values:
  // handles on them stay valid. Buffers stay f32, and so do the statistics of norms and the state
  // of optimizers, because they move by steps that 16 bits would round away. Call it before an
  // optimizer is made, which keeps f32 masters of 16-bit parameters. DTypeError unless it is a
  // float, AutogradError for parameters that an optimizer has.
  void to(DType dtype) { to(dtype, dtype); }
  // The same with another dtype for vectors, such as biases and the weights of norms: for a model
  // that files are made of, since forwards may refuse to mix the two.
  void to(DType matrices, DType vectors);
  void half() { to(DType::f16); }
  void bfloat16() { to(DType::bf16); }
  // Overwrites parameters and buffers with those of the same names in another module, which must
  // have the same ones, as copy.deepcopy(model) would. ValueError or ShapeError names the
  // difference before anything is written.
  void copy_state(const Module& other);

  void train(bool on = true);                     // this module and all below it
  void eval() { train(false); }                   // for evaluation: no dropout, running statistics
  bool is_training() const { return training_; }  // true at first
  // Makes training forwards of the models and stacks of layers in this module drop and recompute
  // their activations, in checkpoint segments of `every` layers; 0 keeps them. A Sequential has
  // checkpoint_every() instead. Modules that are made while blocks are checkpointed
  // (BlockCheckpoints) start with 1. ValueError for negative numbers.
  void set_checkpoint(int every);
  // The layers of a segment as things are: 0 in evaluation.
  int layers_per_segment() const { return training_ ? checkpoint_every_ : 0; }
  bool has_children() const;  // modules were registered in it, parts apart

 protected:
  // Returns a new leaf that requires a gradient; the caller must set its contents (nn/init.h).
  Tensor register_parameter(std::string name, const Shape& shape, DType dtype = DType::f32);
  // The same for a float leaf that exists, which another module may share; DTypeError.
  void register_parameter(std::string name, const Tensor& parameter);
  // The same for a convolution's weight [..., channels] of any rank (torch_state_dict).
  Tensor register_channels_last(const std::string& name, const Shape& shape);
  // Returns state that is saved with the model but not trained, filled with `value`.
  Tensor register_buffer(std::string name, const Shape& shape, float value);
  // The same for a tensor that exists, of any dtype.
  void register_buffer(std::string name, const Tensor& buffer);
  // Registers a module that lives as long as this one: its names begin with `name` and a dot, or
  // with `name` alone if that ends with an underscore. Without a name it is a part of this module.
  void register_module(std::string name, Module& child);
  void unregister_module(const Module& child);
  // Makes `with`, or nothing, a part of this module in place of `part`. Returns what was there.
  std::unique_ptr<Module> exchange_part(std::unique_ptr<Module>& part,
                                        std::unique_ptr<Module> with);
  void unregister_parameter(std::string_view name);
  void unregister_buffer(std::string_view name);

  bool is_child() const { return is_child_; }  // it was registered in another module
  // Makes segments of its own children if blocks are checkpointed, so that it is not a block
  // itself.
  virtual bool segments_itself() const { return false; }

 private:
  bool is_block() const;  // as above
  using Member = std::vector<NamedTensor> Module::*;
  void collect(Member member, const std::string& prefix, std::vector<NamedTensor>& found) const;
  void collect_modules(const std::string& prefix, std::vector<Named>& found) const;

  std::vector<NamedTensor> parameters_, buffers_, channels_last_;
  std::vector<std::pair<std::string, Module*>> children_;
  bool training_ = true, is_child_ = false;
  int checkpoint_every_;
};

}  // namespace rw
