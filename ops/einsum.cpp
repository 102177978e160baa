// einsum: two operands at a time, each pair a batched matrix product.
#include <algorithm>
#include <map>
#include <numeric>

#include "ops/detail.h"
#include "ops/layout/indexing.h"
#include "ops/matmul.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

// Axes are named by numbers: letters, and for the axes of `...` numbers below 0, counted from the
// last.
using Labels = std::vector<int>;

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

struct Operand {
  Tensor x;
  Labels labels;
};

class Einsum {
 public:
  Einsum(std::string_view equation, TensorList& operands) : equation_(equation) {
    std::string text;
    for (const char c : equation)
      if (c != ' ') text += c;
    const size_t arrow = text.find("->");
    std::string inputs = text.substr(0, arrow);
    for (Tensor& x : operands)
      read_operand(next_term(inputs, &x == &operands.back()), std::move(x));
    if (arrow == std::string::npos)
      infer_result();
    else
      read_result(text.substr(arrow + 2));
    stretch();
  }

  Tensor run() {
    const DType dtype = operands_[0].x.dtype();
    if (rounds_between())
      for (Operand& operand : operands_) operand.x = wide(std::move(operand.x));
    Operand left = std::move(operands_[0]);
    for (size_t i = 1; i < operands_.size(); ++i)
      left = contract(std::move(left), std::move(operands_[i]), i + 1);
    sum_out(left, operands_.size(), nullptr);
    left.x = is_half(dtype) ? cast(std::move(left.x), dtype) : std::move(left.x);
    return arrange(std::move(left), result_);
  }

 private:
  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> what, Args&&... args) const {
    check(holds, "einsum", "{} in '{}'", fmt::format(what, std::forward<Args>(args)...), equation_);
  }

  std::string next_term(std::string& rest, bool is_last) const {
    const size_t comma = rest.find(',');
    require((comma == std::string::npos) == is_last, "there must be a term for each operand");
    std::string term = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    return term;
  }

  // The labels of a term; `hidden` is the number of axes that its `...` stands for.
  Labels read_labels(const std::string& term, int hidden) const {
    Labels labels;
    for (size_t i = 0; i < term.size(); ++i) {
      if (std::isalpha(static_cast<unsigned char>(term[i]))) {
        labels.push_back(term[i]);
        continue;
      }
      require(term.compare(i, 3, "...") == 0, "needs letters and `...`, got '{}'", term[i]);
      require(term.find("...", i + 3) == std::string::npos, "a term has one `...`");
      for (int k = hidden; k > 0; --k) labels.push_back(-k);
      i += 2;
    }
    return labels;
  }

  void read_operand(const std::string& term, Tensor x) {
    const bool has_dots = term.find("...") != std::string::npos;
    const int letters = static_cast<int>(read_labels(term, 0).size());
    check<ShapeError>(has_dots ? letters <= x.rank() : letters == x.rank(), "einsum",
                      "'{}' must have a letter for each axis, got {}", term, x);
    hidden_ = std::max(hidden_, x.rank() - letters);
    Labels labels = read_labels(term, x.rank() - letters);
    Operand operand{std::move(x), std::move(labels)};
    take_diagonals(operand);
    for (size_t i = 0; i < operand.labels.size(); ++i) {
      int64_t& size = sizes_.try_emplace(operand.labels[i], 1).first->second;
      const int64_t mine = operand.x.size(static_cast<int>(i));
      check<ShapeError>(size == 1 || mine == 1 || size == mine, "einsum",
                        "sizes of one letter must agree, got {} and {} in '{}'", size, mine,
                        equation_);
      if (size == 1) size = mine;
    }
    operands_.push_back(std::move(operand));
  }

  static void take_diagonals(Operand& operand) {
    for (size_t i = 0; i < operand.labels.size(); ++i)
      for (size_t j = i + 1; j < operand.labels.size(); ++j) {
        const int label = operand.labels[i];
        if (operand.labels[j] != label) continue;
        const auto a = static_cast<int>(i), b = static_cast<int>(j);
        check<ShapeError>(operand.x.size(a) == operand.x.size(b), "einsum",
                          "axes {} and {} have one letter and must be of one size, got {}", a, b,
                          operand.x);
        operand.x = diagonal(std::move(operand.x), 0, a, b);
        operand.labels.erase(operand.labels.begin() + b);
        operand.labels.erase(operand.labels.begin() + a);
        operand.labels.push_back(label);
        i = static_cast<size_t>(-1);  // from the beginning: the axes have moved
        break;
      }
  }

  void read_result(const std::string& term) {
    result_ = read_labels(term, hidden_);
    for (size_t i = 0; i < result_.size(); ++i) {
      require(sizes_.contains(result_[i]), "the result must be made of the operands' letters");
      require(std::count(result_.begin(), result_.end(), result_[i]) == 1,
              "the result must name an axis once");
    }
  }

  // Without an arrow the result has the axes of `...`, then the letters that occur once, in order.
  void infer_result() {
    for (int k = hidden_; k > 0; --k) result_.push_back(-k);
    for (const auto& [label, size] : sizes_) {
      int64_t count = 0;
      const auto letter = static_cast<char>(label);
      if (label > 0) count = std::count(equation_.begin(), equation_.end(), letter);
      if (count == 1) result_.push_back(label);
    }
  }

  // Axes of size 1 are expanded to the size of their letter.
  void stretch() {
    for (Operand& operand : operands_) {
      Shape shape;
      for (const int label : operand.labels) shape.push_back(sizes_.at(label));
      if (!(shape == operand.x.shape())) operand.x = expand(std::move(operand.x), shape);
    }
  }

  // Whether the result or an operand from `next` on has the label.
  bool is_wanted(int label, size_t next) const {
    for (size_t i = next; i < operands_.size(); ++i)
      if (has(operands_[i].labels, label)) return true;
    return has(result_, label);
  }

  // Whether there is a step before the last one: another product, or a sum of one operand of two.
  bool rounds_between() const {
    if (operands_.size() != 2) return operands_.size() > 2;
    for (size_t i = 0; i < 2; ++i)
      for (const int label : operands_[i].labels)
        if (!has(result_, label) && !has(operands_[1 - i].labels, label)) return true;
    return false;
  }

  // Sums over the axes that neither the result nor another operand has.
  void sum_out(Operand& operand, size_t next, const Operand* other) const {
    Axes axes;
    Labels rest;
    for (size_t i = 0; i < operand.labels.size(); ++i) {
      const int label = operand.labels[i];
      if (is_wanted(label, next) || (other && has(other->labels, label)))
        rest.push_back(label);
      else
        axes.push_back(static_cast<int>(i));
    }
    if (!axes.empty()) operand.x = sum(std::move(operand.x), axes);
    operand.labels = std::move(rest);
  }

  static Tensor arrange(Operand operand, const Labels& order) {
    Axes axes;
    for (const int label : order)
      axes.push_back(static_cast<int>(
          std::find(operand.labels.begin(), operand.labels.end(), label) - operand.labels.begin()));
    return permute(std::move(operand.x), axes);
  }

  int64_t product(const Labels& labels) const {
    return std::accumulate(labels.begin(), labels.end(), int64_t{1},
                           [this](int64_t n, int label) { return n * sizes_.at(label); });
  }

  static Labels joined(std::initializer_list<Labels> parts) {
    Labels all;
    for (const Labels& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  // [batch, rows, inner] @ [batch, inner, columns].
  Operand contract(Operand a, Operand b, size_t next) const {
    sum_out(a, next, &b);
    sum_out(b, next, &a);
    Labels batch, rows, inner, columns;
    for (const int label : a.labels)
      (!has(b.labels, label) ? rows : is_wanted(label, next) ? batch : inner).push_back(label);
    for (const int label : b.labels)
      if (!has(a.labels, label)) columns.push_back(label);
    const int64_t n = product(batch), m = product(rows), k = product(inner), c = product(columns);
    Tensor left = reshape(arrange(std::move(a), joined({batch, rows, inner})), {n, m, k});
    Tensor right = reshape(arrange(std::move(b), joined({batch, inner, columns})), {n, k, c});
    if (!inner.empty() && thread_state().autocasts.empty()) check_same_float(left, right, "einsum");
    // Without a sum this is an elementwise product.
    Tensor y = inner.empty() ? std::move(left) * std::move(right)
                             : matmul(std::move(left), std::move(right));
    Operand result{{}, joined({batch, rows, columns})};
    Shape shape;
    for (const int label : result.labels) shape.push_back(sizes_.at(label));
    result.x = reshape(std::move(y), shape);
    return result;
  }

  std::string equation_;
  std::vector<Operand> operands_;
  Labels result_;
  std::map<int, int64_t> sizes_;  // by label
  int hidden_ = 0;                // axes that `...` stands for
};

}  // namespace

Tensor einsum(std::string_view equation, TensorList operands) {
  check(!operands.empty(), "einsum", "needs at least one operand, got none for '{}'", equation);
  return Einsum(equation, operands).run();
}

}  // namespace rw
