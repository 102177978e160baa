#include "backends/vulkan/device/freeze.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

namespace rw::vulkan {

namespace {

// The names are those of the specification, without "Op".
enum Op : uint32_t {
  Nop = 0,
  Name = 5,
  Line = 8,
  EntryPoint = 15,
  ExecutionMode = 16,
  Capability = 17,
  TypeInt = 21,
  ConstantTrue = 41,
  ConstantFalse = 42,
  Constant = 43,
  ConstantComposite = 44,
  SpecConstantTrue = 48,
  SpecConstantFalse = 49,
  SpecConstant = 50,
  SpecConstantComposite = 51,
  SpecConstantOp = 52,
  Function = 54,
  FunctionEnd = 56,
  Store = 62,
  CopyMemorySized = 64,
  Decorate = 71,
  ImageWrite = 99,
  ControlBarrier = 224,
  MemoryBarrier = 225,
  AtomicStore = 228,
  Phi = 245,
  LoopMerge = 246,
  SelectionMerge = 247,
  Label = 248,
  Branch = 249,
  BranchConditional = 250,
  Switch = 251,
  Unreachable = 255,
  NoLine = 317,
  CooperativeMatrixStoreKHR = 4458,
  CooperativeMatrixStoreNV = 5360,
};
constexpr uint32_t kHeaderWords = 5, kSpecId = 1, kUnroll = 1;

struct Instruction {
  std::span<const uint32_t> words;
  uint32_t op() const { return words[0] & 0xffff; }
  uint32_t operator[](size_t i) const { return words[i]; }
  size_t size() const { return words.size(); }
};

// These occur in function bodies.
std::optional<uint32_t> result_of(const Instruction& i) {
  switch (i.op()) {
    case Nop:
    case Line:
    case Store:
    case CopyMemorySized - 1:
    case CopyMemorySized:
    case ImageWrite:
    case ControlBarrier:
    case MemoryBarrier:
    case AtomicStore:
    case LoopMerge:
    case SelectionMerge:
    case NoLine:
    case CooperativeMatrixStoreKHR:
    case CooperativeMatrixStoreNV:
      return {};
    case Label:
      return i[1];
  }
  if (i.op() >= Branch && i.op() <= Unreachable) return {};
  return i[2];
}

// The result of an instruction on 32-bit integers and booleans, for the instructions that index
// computations and conditions consist of.
std::optional<uint32_t> fold(uint32_t op, std::span<const uint32_t> x) {
  const auto as_signed = [&](size_t i) { return static_cast<int32_t>(x[i]); };
  if (op == 169 && x.size() == 3) return x[0] ? x[1] : x[2];  // Select
  if (x.size() == 1) {
    switch (op) {
      case 126:
        return 0 - x[0];  // SNegate
      case 168:
        return !x[0];  // LogicalNot
      case 200:
        return ~x[0];  // Not
    }
  }
  if (x.size() != 2) return {};
  switch (op) {
    case 128:
      return x[0] + x[1];
    case 130:
      return x[0] - x[1];
    case 132:
      return x[0] * x[1];
    case 164:  // LogicalEqual
    case 170:
      return x[0] == x[1];  // IEqual
    case 165:               // LogicalNotEqual
    case 171:
      return x[0] != x[1];  // INotEqual
    case 166:
      return x[0] || x[1];  // LogicalOr
    case 167:
      return x[0] && x[1];  // LogicalAnd
    case 172:
      return x[0] > x[1];  // UGreaterThan
    case 173:
      return as_signed(0) > as_signed(1);
    case 174:
      return x[0] >= x[1];
    case 175:
      return as_signed(0) >= as_signed(1);
    case 176:
      return x[0] < x[1];
    case 177:
      return as_signed(0) < as_signed(1);
    case 178:
      return x[0] <= x[1];
    case 179:
      return as_signed(0) <= as_signed(1);
    case 197:
      return x[0] | x[1];
    case 198:
      return x[0] ^ x[1];
    case 199:
      return x[0] & x[1];
  }
  if (op >= 194 && op <= 196 && x[1] >= 32) return {};
  switch (op) {
    case 194:
      return x[0] >> x[1];
    case 195:
      return static_cast<uint32_t>(as_signed(0) >> x[1]);
    case 196:
      return x[0] << x[1];
  }
  if (!x[1]) return {};
  if (op == 134) return x[0] / x[1];  // UDiv
  if (op == 137) return x[0] % x[1];  // UMod
  return {};
}

struct Block {
  size_t first, last;  // instructions: the label, the one that ends it
  std::vector<uint32_t> targets;
  bool is_reached = false, is_merge = false;  // is_merge: of one that is reached
};

class Module {
 public:
  Module(std::span<const uint32_t> words, bool unrolls, std::span<const FloatMode> modes)
      : words_(words), unrolls_(unrolls), modes_(modes), facts_(words[3]) {
    for (size_t at = kHeaderWords; at < words.size(); at += words[at] >> 16)
      all_.push_back({words.subspan(at, words[at] >> 16)});
  }

  std::vector<uint32_t> freeze(std::span<const std::pair<uint32_t, uint32_t>> values) {
    find_constants(values);
    find_blocks();
    if (!reach()) {
      for (auto& [label, block] : blocks_) block.is_reached = true;
      removes_ = false;
    }
    for (const auto& [label, block] : blocks_)
      if (!block.is_reached)
        for (size_t i = block.first + block.is_merge; i <= block.last; ++i)
          if (const auto id = result_of(all_[i])) facts_[*id].is_gone = true;
    write();
    return std::move(out_);
  }

 private:
  struct Fact {
    std::optional<uint32_t> spec;   // bits given to it
    std::optional<uint32_t> value;  // where it is a known integer of 32 bits, or a boolean
    bool is_int = false;            // the type of those
    bool is_open = false;           // a specialization constant that stays one
    bool is_gone = false;
  };

  // Finds what is known of every id, in one pass: definitions come before what they dominate.
  void find_constants(std::span<const std::pair<uint32_t, uint32_t>> values) {
    for (const Instruction& i : all_) {
      switch (i.op()) {
        case Decorate:
          if (i[2] == kSpecId)
            for (const auto& [id, bits] : values)
              if (id == i[3]) facts_[i[1]].spec = bits;
          break;
        case TypeInt:
          facts_[i[1]].is_int = i[2] == 32;
          break;
        case ConstantTrue:
        case ConstantFalse:
          facts_[i[2]].value = i.op() == ConstantTrue;
          break;
        case SpecConstantTrue:
        case SpecConstantFalse:
          facts_[i[2]].value = facts_[i[2]].spec.value_or(i.op() == SpecConstantTrue);
          break;
        case Constant:
        case SpecConstant:
          if (facts_[i[1]].is_int) facts_[i[2]].value = facts_[i[2]].spec.value_or(i[3]);
          break;
        case SpecConstantComposite:
          facts_[i[2]].is_open = std::any_of(i.words.begin() + 3, i.words.end(),
                                             [&](uint32_t id) { return facts_[id].is_open; });
          break;
        case SpecConstantOp:
          facts_[i[2]].value = folded(i[3], i.words.subspan(4));
          facts_[i[2]].is_open = !facts_[i[2]].value;
          break;
        default:
          if (i.op() >= 126 && i.op() <= 200 && i.size() > 3)
            facts_[i[2]].value = folded(i.op(), i.words.subspan(3));
      }
    }
  }

  std::optional<uint32_t> folded(uint32_t op, std::span<const uint32_t> operands) const {
    std::vector<uint32_t> known;
    for (const uint32_t id : operands) {
      if (id >= facts_.size() || !facts_[id].value) return {};
      known.push_back(*facts_[id].value);
    }
    return fold(op, known);
  }

  void find_blocks() {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].op() == Function) entries_.push_back(0);
      if (all_[i].op() != Label) continue;
      const uint32_t label = all_[i][1];
      if (!entries_.back()) entries_.back() = label;
      Block block{.first = i, .last = i, .targets = {}};
      while (all_[block.last].op() < Branch || all_[block.last].op() > Unreachable) ++block.last;
      block.targets = targets(all_[block.last]);
      blocks_.emplace(label, std::move(block));
    }
  }

  std::vector<uint32_t> targets(const Instruction& end) const {
    if (end.op() == Branch) return {end[1]};
    if (end.op() != BranchConditional && end.op() != Switch) return {};
    const std::optional<uint32_t> value = facts_[end[1]].value;
    if (end.op() == BranchConditional) {
      if (value) return {*value ? end[2] : end[3]};
      return {end[2], end[3]};
    }
    std::vector<uint32_t> all = {end[2]};
    for (size_t k = 3; k + 1 < end.size(); k += 2) {
      if (value == end[k]) return {end[k + 1]};
      all.push_back(end[k + 1]);
    }
    if (value) all.resize(1);
    return all;
  }

  // The merge instruction of a block, if it has one.
  const Instruction* merge_of(const Block& block) const {
    if (block.last == block.first) return nullptr;
    const Instruction& i = all_[block.last - 1];
    return i.op() == LoopMerge || i.op() == SelectionMerge ? &i : nullptr;
  }
  bool is_decided(const Block& block) const {
    const Instruction& end = all_[block.last];
    return end.op() != Branch && block.targets.size() == 1;
  }
  // A selection that is decided stops being one. A switch does not: its inside may leave it from
  // any depth, and branches may do this only to merge blocks.
  bool drops_merge(const Block& block) const {
    const Instruction* merge = merge_of(block);
    return merge && merge->op() == SelectionMerge && is_decided(block) &&
           all_[block.last].op() == BranchConditional;
  }

  // False if a loop's continue target is not reached any longer.
  bool reach() {
    std::vector<uint32_t> todo = entries_;
    while (!todo.empty()) {
      Block& block = blocks_.at(todo.back());
      todo.pop_back();
      if (std::exchange(block.is_reached, true)) continue;
      todo.insert(todo.end(), block.targets.begin(), block.targets.end());
    }
    for (const auto& [label, block] : blocks_) {
      const Instruction* merge = block.is_reached ? merge_of(block) : nullptr;
      if (!merge || drops_merge(block)) continue;
      blocks_.at((*merge)[1]).is_merge = true;
      if (merge->op() == LoopMerge && !blocks_.at((*merge)[2]).is_reached) return false;
    }
    return true;
  }

  void put(uint32_t op, std::initializer_list<std::span<const uint32_t>> parts) {
    const size_t at = out_.size();
    out_.push_back(0);
    for (const auto part : parts) out_.insert(out_.end(), part.begin(), part.end());
    out_[at] = static_cast<uint32_t>(out_.size() - at) << 16 | op;
  }

  void write() {
    out_.assign(words_.begin(), words_.begin() + kHeaderWords);
    for (const FloatMode& m : modes_) put(Capability, {{&m.capability, 1}});
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].op() == Label) {
        const Block& block = blocks_.at(all_[i][1]);
        write_block(block);
        i = block.last;
      } else {
        write_declaration(all_[i]);
      }
    }
  }

  void write_declaration(const Instruction& i) {
    const auto rest = i.words.subspan(1);
    switch (i.op()) {
      case EntryPoint:
        put(i.op(), {rest});
        for (const FloatMode& m : modes_)
          put(ExecutionMode, {i.words.subspan(2, 1), {&m.mode, 1}, {&m.width, 1}});
        return;
      case Name:
      case Decorate:
        if (facts_[i[1]].is_gone || (i.op() == Decorate && i[2] == kSpecId)) return;
        return put(i.op(), {rest});
      case SpecConstantTrue:
      case SpecConstantFalse:
        return put(*facts_[i[2]].value ? ConstantTrue : ConstantFalse, {rest});
      case SpecConstant: {
        const uint32_t bits = facts_[i[2]].spec.value_or(i[3]);
        return put(Constant, {rest.first(2), {&bits, 1}});
      }
      case SpecConstantComposite:
        return put(facts_[i[2]].is_open ? SpecConstantComposite : ConstantComposite, {rest});
      case SpecConstantOp: {
        const std::optional<uint32_t> value = facts_[i[2]].value;
        if (!value) return put(i.op(), {rest});
        if (!facts_[i[1]].is_int)
          return put(*value ? ConstantTrue : ConstantFalse, {rest.first(2)});
        return put(Constant, {rest.first(2), {&*value, 1}});
      }
    }
    put(i.op(), {rest});
  }

  void write_block(const Block& block) {
    const uint32_t label = all_[block.first][1];
    if (!block.is_reached) {
      if (!block.is_merge) return;
      put(Label, {{&label, 1}});
      return put(Unreachable, {});
    }
    for (size_t i = block.first; i < block.last; ++i) {
      if (removes_ && all_[i].op() == Phi)
        write_phi(all_[i], label);
      else if (!unrolls_ && all_[i].op() == LoopMerge)
        write_rolled(all_[i]);
      else if (!removes_ || &all_[i] != merge_of(block) || !drops_merge(block))
        put(all_[i].op(), {all_[i].words.subspan(1)});
    }
    const Instruction& end = all_[block.last];
    if (!removes_ || !is_decided(block)) return put(end.op(), {end.words.subspan(1)});
    if (end.op() == Switch) return put(Switch, {end.words.subspan(1, 1), block.targets});
    put(Branch, {block.targets});
  }

  void write_rolled(const Instruction& merge) {
    const uint32_t control = merge[3] & ~kUnroll;
    put(LoopMerge, {merge.words.subspan(1, 2), {&control, 1}, merge.words.subspan(4)});
  }

  void write_phi(const Instruction& phi, uint32_t label) {
    std::vector<uint32_t> pairs;
    for (size_t k = 3; k + 1 < phi.size(); k += 2) {
      const Block& from = blocks_.at(phi[k + 1]);
      if (from.is_reached &&
          std::find(from.targets.begin(), from.targets.end(), label) != from.targets.end())
        pairs.insert(pairs.end(), {phi[k], phi[k + 1]});
    }
    put(Phi, {phi.words.subspan(1, 2), pairs});
  }

  std::span<const uint32_t> words_;
  const bool unrolls_;
  const std::span<const FloatMode> modes_;
  std::vector<Instruction> all_;
  std::vector<Fact> facts_;           // by id
  std::map<uint32_t, Block> blocks_;  // by label
  std::vector<uint32_t> entries_;     // labels
  bool removes_ = true;
  std::vector<uint32_t> out_;
};

}  // namespace

std::vector<uint32_t> freeze(std::span<const uint32_t> words,
                             std::span<const std::pair<uint32_t, uint32_t>> values, bool unrolls,
                             std::span<const FloatMode> modes) {
  return Module(words, unrolls, modes).freeze(values);
}

}  // namespace rw::vulkan
