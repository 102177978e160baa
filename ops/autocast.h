// Mixed precision: the ops that work on 16-bit tensors (Micikevicius et al. 2018). See
// docs/mixed-precision.md.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "../core/tensor/tensor.h"

namespace rw {

// The rule for the float inputs of an op inside an Autocast scope.
enum class AutocastRule : uint8_t {
  low,   // they become the scope's dtype
  f32,   // the result is f32: inputs become f32, or are read as they are if the kernel can
  keep,  // they stay as they are; if those of one op differ, all become the widest of them
};

// Ops that follow other rules in a scope, by their names in Autocast::ops().
struct AutocastLists {
  std::vector<std::string> f32 = {}, low = {}, keep = {};  // one list for each rule
};

// While it lives, listed ops of this thread choose the dtypes of their inputs by Autocast::ops(),
// and ops that are not listed take their inputs as they are. The casts are recorded: the replay of
// a checkpoint segment, and a gradient, have the same dtypes wherever they run. A scope inside
// another one starts with the other's rules. Scopes may end in any order.
class Autocast {
 public:
  // DTypeError unless the dtype is a float. If `enabled` is false, nothing inside is autocast.
  explicit Autocast(DType dtype, bool enabled = true);
  // ValueError for an op that is not listed, or in two lists.
  Autocast(DType dtype, const AutocastLists& changes);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  // An op and its rule.
  struct Row {
    const char* op;
    AutocastRule rule;
  };
  static const std::vector<Row>& ops();  // all listed ops, with the rules with which scopes begin
  // The rule here and now; `keep` outside of all scopes.
  static AutocastRule rule(const std::string& op);
  // Returns x as an op of the rule `low` would see it.
  static Tensor input(Tensor x);
  // cast(x, dtype), which takes a parameter from its copy.
  static Tensor as(Tensor x, DType dtype);

 private:
  friend class AutocastInputs;
  static const Autocast* innermost();  // null: nothing is autocast
  DType dtype_;
  bool is_enabled_;
  std::vector<AutocastRule> rules_;  // by row
};

// Stands at the beginning of a listed op. It casts the inputs as the innermost scope says. Until it
// dies, nothing is autocast, so the ops inside keep the op's dtypes.
class AutocastInputs {
 public:
  // If `widens`, the op reads 16-bit inputs and gives f32 by itself, so the rule f32 casts nothing.
  AutocastInputs(const char* op, std::initializer_list<Tensor*> inputs, bool widens = false);
  AutocastInputs(const char* op, std::vector<Tensor>& inputs);
  bool is_f32() const { return rule_ == AutocastRule::f32; }  // the result must be f32

 private:
  template <class Range>
  static AutocastRule apply(const char* op, const Range& inputs, bool widens);

  const AutocastRule rule_;  // initialised before the scope ends for the rest
  const NoAutocast rest_;
};

}  // namespace rw
