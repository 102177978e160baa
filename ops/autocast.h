// Mixed precision: which ops work on 16-bit tensors (Micikevicius et al. 2018).
// docs/mixed-precision.md
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "../core/tensor/tensor.h"

namespace rw {

// What a scope of Autocast does with the float inputs of an op.
enum class AutocastRule : uint8_t {
  low,   // they become the scope's dtype
  f32,   // the result is f32: inputs become f32, or are read as they are where the kernel can
  keep,  // they come as they are; where those of one op differ, all become the widest of them
};

// Ops that follow other rules in a scope, by the names of Autocast::ops().
struct AutocastLists {
  std::vector<std::string> f32 = {}, low = {}, keep = {};  // one list for each rule
};

// While alive, the ops of this thread that are listed choose the dtypes of their inputs by
// Autocast::ops(), and ops that are not listed take what they get. The casts are recorded: a
// checkpoint segment that is replayed, or a gradient, has the same dtypes wherever that happens.
// A scope inside another one begins with the other's rules. Scopes may end in any order.
class Autocast {
 public:
  // DTypeError unless it is a float. `enabled` false: nothing is autocast inside.
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
  static const std::vector<Row>& ops();  // all that are listed, as scopes have them at first
  static AutocastRule rule(const std::string& op);  // here and now; `keep` outside of all scopes
  static Tensor input(Tensor x);                    // x as an op of the rule `low` would see it
  static Tensor as(Tensor x, DType dtype);          // cast(x, dtype), for a parameter from its copy

 private:
  friend class AutocastInputs;
  static const Autocast* innermost();  // null: nothing is autocast
  DType dtype_;
  bool is_enabled_;
  std::vector<AutocastRule> rules_;  // by row
};

// Stands at the beginning of an op that is listed. It makes the inputs what the innermost scope
// says; until it dies nothing is autocast, so that what the op is made of has the op's types.
class AutocastInputs {
 public:
  // `widens`: the op reads 16-bit inputs and gives f32 by itself, so the rule f32 casts nothing.
  AutocastInputs(const char* op, std::initializer_list<Tensor*> inputs, bool widens = false);
  AutocastInputs(const char* op, std::vector<Tensor>& inputs);
  bool is_f32() const { return rule_ == AutocastRule::f32; }  // the result is to be f32

 private:
  template <class Range>
  static AutocastRule apply(const char* op, const Range& inputs, bool widens);

  const AutocastRule rule_;  // before what ends the scope for the rest
  const NoAutocast rest_;
};

}  // namespace rw
