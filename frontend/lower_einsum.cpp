// Einsum with any equation. A stack of products of matrices is a MatMul. The dictionary's entry takes any other product
// of two operands in which every label is needed; everything else is rewritten first: repeated labels become diagonals,
// labels of only one operand are summed, axes of size 1 that broadcast are dropped, and three or more operands become
// products of pairs, in the order that needs the fewest multiplications.

#include <algorithm>
#include <limits>
#include <map>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::ValueId;

/// Orders are searched over all subsets of the operands.
constexpr size_t kMaxOperands = 10;
/// The size assumed for a batch when orders are compared: any size that is neither one nor huge.
constexpr int64_t kNominalBatch = 32;

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Labels are letters, one per axis. Until the ranks are known, '.' stands for an ellipsis.
struct EinsumText {
  std::vector<std::string> operands;
  std::optional<std::string> result;
};

/// nullopt if the text is not an equation.
std::optional<EinsumText> parse_einsum(std::string_view equation) {
  EinsumText parsed;
  parsed.operands.emplace_back();
  for (size_t i = 0; i < equation.size(); ++i) {
    const char c = equation[i];
    std::string& term = parsed.result ? *parsed.result : parsed.operands.back();
    if (c == ' ') continue;
    if (kLetters.find(c) != std::string_view::npos) {
      term += c;
    } else if (equation.substr(i, 3) == "..." && term.find('.') == std::string::npos) {
      term += '.';
      i += 2;
    } else if (c == ',' && !parsed.result) {
      parsed.operands.emplace_back();
    } else if (equation.substr(i, 2) == "->" && !parsed.result) {
      parsed.result.emplace();
      ++i;
    } else {
      return std::nullopt;
    }
  }
  return parsed;
}

/// The result of a text without "->": the ellipsis, then the letters that occur once, in alphabetical order.
std::string implicit_einsum_result(const std::vector<std::string>& operands) {
  std::map<char, int> counts;
  for (const std::string& operand : operands)
    for (const char label : operand) ++counts[label];
  std::string result(counts.count('.') > 0 ? "." : "");
  for (const auto& [label, count] : counts)
    if (count == 1 && label != '.') result += label;
  return result;
}

/// Letters that an equation does not use, for the axes of its ellipses.
std::string free_letters(const EinsumText& equation) {
  std::string letters;
  for (const char letter : kLetters) {
    const auto uses = [letter](const std::string& term) { return term.find(letter) != std::string::npos; };
    if (std::none_of(equation.operands.begin(), equation.operands.end(), uses)) letters += letter;
  }
  return letters;
}

class Contraction {
 public:
  explicit Contraction(NodeContext& context) : context_(context) {}
  Status run();

 private:
  /// A tensor and the labels of its axes.
  struct Term {
    ValueId value;
    std::string labels;
  };
  using Set = uint32_t;  // of operands

  Diagnostic bad_equation(std::string message) const {
    return context_.problem(Code::kBadModel, std::move(message), "export the model again");
  }
  Status read_equation();
  Status read_sizes();
  Status bring_to_letters(Term& term, size_t operand);
  Status take_diagonal(Term& term, size_t first, size_t second);
  Status sum_alone(Term& term, size_t operand);
  /// Transposed to this order of axes.
  Result<ValueId> turned(ValueId value, std::vector<int64_t> order) {
    if (std::is_sorted(order.begin(), order.end())) return value;
    return context_.emit_one("Transpose", {value}, {{"perm", std::move(order)}});
  }
  Result<ValueId> turned(const Term& term, const std::string& labels) {
    std::vector<int64_t> order;
    for (const char label : labels) order.push_back(static_cast<int64_t>(term.labels.find(label)));
    return turned(term.value, std::move(order));
  }
  ir::Shape shape_of(const Term& term) { return context_.lowering().graph().value(term.value).type.shape; }

  // Labels that the result or an operand outside of the set has.
  std::string labels_of(Set operands) const;
  void find_order();
  Result<Term> product(Set operands, const std::vector<Term>& terms);
  Result<std::optional<ValueId>> matrix_product(const Term& a, const Term& b, const std::string& labels);
  Status finish(Term term);

  NodeContext& context_;
  EinsumText equation_;
  std::string result_;
  std::map<char, Dim> sizes_;
  /// How each set is split into two, and the number of multiplications.
  std::vector<Set> parts_;
  std::vector<double> costs_;
};

Status Contraction::read_equation() {
  std::optional<EinsumText> parsed = parse_einsum(context_.string_attribute("equation", ""));
  if (!parsed) return bad_equation("its equation cannot be read");
  equation_ = std::move(*parsed);
  if (equation_.operands.size() != context_.node().inputs.size())
    return bad_equation("its equation has more or fewer operands than the node has inputs");
  if (equation_.operands.size() > kMaxOperands)
    return context_.problem(Code::kLimitExceeded, text("multiplies more than ", kMaxOperands, " operands at once"),
                            "write it as several einsums");
  result_ = equation_.result.value_or(implicit_einsum_result(equation_.operands));
  const std::string letters = free_letters(equation_);
  size_t widest = 0;
  for (size_t i = 0; i < equation_.operands.size(); ++i) {
    if (!context_.has_input(i)) return bad_equation(text("lacks operand ", i));
    std::string& labels = equation_.operands[i];
    const size_t dots = labels.find('.'), named = labels.size() - (dots == std::string::npos ? 0 : 1);
    const size_t rank = context_.rank(i);
    if (rank < named || (dots == std::string::npos && rank != named) || rank - named > letters.size())
      return bad_equation(text("its equation does not fit operand ", i, " of rank ", rank));
    if (dots == std::string::npos) continue;
    // Ellipses are aligned at their last axes.
    std::string axes = letters.substr(0, rank - named);
    widest = std::max(widest, axes.size());
    std::reverse(axes.begin(), axes.end());
    labels.replace(dots, 1, axes);
  }
  if (const size_t dots = result_.find('.'); dots != std::string::npos) {
    std::string axes = letters.substr(0, widest);
    std::reverse(axes.begin(), axes.end());
    result_.replace(dots, 1, axes);
  }
  return Ok{};
}

Status Contraction::read_sizes() {
  for (size_t i = 0; i < equation_.operands.size(); ++i) {
    const ir::Shape& shape = context_.type(i).shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const char label = equation_.operands[i][axis];
      Dim& size = sizes_.emplace(label, shape[axis]).first->second;
      if (size == Dim::fixed(1)) size = shape[axis];
      else if (shape[axis] != size && shape[axis] != Dim::fixed(1))
        return bad_equation(
            text("one label of its equation has two sizes, the second at axis ", axis, " of operand ", i));
    }
  }
  std::string sorted = result_;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return bad_equation("its equation names a label twice in the result");
  for (const char label : result_)
    if (sizes_.count(label) == 0) return bad_equation("its equation has a label in the result that no operand has");
  return Ok{};
}

/// The elements at which both axes have the same index, on the last axis.
Status Contraction::take_diagonal(Term& term, size_t first, size_t second) {
  ir::Shape shape = shape_of(term);
  const Dim size = shape[first];
  if (!size.is_fixed())
    return context_.problem(Code::kMixesSamples, "takes the diagonal of the batch axis", "name the batch axis once");
  std::vector<int64_t> order;
  ir::Shape joined;
  std::string labels;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis == first || axis == second) continue;
    order.push_back(static_cast<int64_t>(axis));
    joined.push_back(shape[axis]);
    labels += term.labels[axis];
  }
  labels += term.labels[first];
  order.push_back(static_cast<int64_t>(first));
  order.push_back(static_cast<int64_t>(second));
  joined.push_back(Dim::fixed(size.factor * size.factor));
  const std::vector<int64_t> start{0}, end{size.factor * size.factor}, step{size.factor + 1},
      last{static_cast<int64_t>(joined.size()) - 1};
  GP_TRY(ValueId value, turned(term.value, std::move(order)));
  GP_TRY(value, context_.emit_one("Reshape", {value}, {{"shape", std::move(joined)}}));
  GP_TRY(value,
         context_.emit_one("Slice", {value}, {{"starts", start}, {"ends", end}, {"axes", last}, {"steps", step}}));
  term = {value, std::move(labels)};
  return Ok{};
}

/// Sums over the labels that neither the result nor another operand has.
Status Contraction::sum_alone(Term& term, size_t operand) {
  const std::string needed = labels_of(Set{1} << operand);
  std::vector<int64_t> axes;
  std::string labels;
  for (size_t axis = 0; axis < term.labels.size(); ++axis) {
    if (needed.find(term.labels[axis]) == std::string::npos) axes.push_back(static_cast<int64_t>(axis));
    else labels += term.labels[axis];
  }
  if (axes.empty()) return Ok{};
  GP_TRY(term.value,
         context_.emit_one("ReduceSum", {term.value}, {{"axes", std::move(axes)}, {"keepdims", int64_t{0}}}));
  term.labels = std::move(labels);
  return Ok{};
}

/// Every label of the term once, with its full size, and needed by another operand or by the result.
Status Contraction::bring_to_letters(Term& term, size_t operand) {
  for (size_t axis = 1; axis < term.labels.size();) {
    const size_t first = term.labels.find(term.labels[axis]);
    if (first == axis) {
      ++axis;
      continue;
    }
    if (shape_of(term)[first] != shape_of(term)[axis])
      return bad_equation(text("takes a diagonal of operand ", operand, ", whose two axes differ in size"));
    GP_TRY_VOID(take_diagonal(term, first, axis));
    axis = 1;
  }
  std::vector<int64_t> ones;
  std::string labels;
  const ir::Shape shape = shape_of(term);
  for (size_t axis = 0; axis < term.labels.size(); ++axis) {
    if (shape[axis] != sizes_.at(term.labels[axis])) ones.push_back(static_cast<int64_t>(axis));
    else labels += term.labels[axis];
  }
  if (!ones.empty()) {
    GP_TRY(term.value, context_.emit_one("Squeeze", {term.value}, {{"axes", std::move(ones)}}));
  }
  term.labels = labels;
  equation_.operands[operand] = std::move(labels);
  return Ok{};
}

std::string Contraction::labels_of(Set operands) const {
  std::string inside, outside = result_;
  for (size_t i = 0; i < equation_.operands.size(); ++i)
    ((operands >> i) % 2 == 1 ? inside : outside) += equation_.operands[i];
  std::string labels;
  for (const char label : inside)
    if (outside.find(label) != std::string::npos && labels.find(label) == std::string::npos) labels += label;
  return labels;
}

void Contraction::find_order() {
  const Set all = (Set{1} << equation_.operands.size()) - 1;
  parts_.assign(all + 1, 0);
  costs_.assign(all + 1, 0);
  std::vector<std::string> labels(all + 1);
  for (Set set = 1; set <= all; ++set) labels[set] = labels_of(set);
  const auto size_of = [&](Set a, Set b) {
    double size = 1;
    for (const auto& [label, dim] : sizes_)
      if (labels[a].find(label) != std::string::npos || labels[b].find(label) != std::string::npos)
        size *= static_cast<double>(dim.at(Samples(kNominalBatch)));
    return size;
  };
  for (Set set = 1; set <= all; ++set) {
    if ((set & (set - 1)) == 0) continue;
    costs_[set] = std::numeric_limits<double>::infinity();
    const Set first = set & (~set + 1);
    for (Set part = (set - 1) & set; part != 0; part = (part - 1) & set) {
      // Consider each split once, with the first operand on the left.
      if ((part & first) == 0) continue;
      const Set rest = set ^ part;
      const double cost = costs_[part] + costs_[rest] + size_of(part, rest);
      if (cost >= costs_[set]) continue;
      costs_[set] = cost;
      parts_[set] = part;
    }
  }
}

Result<Contraction::Term> Contraction::product(Set operands, const std::vector<Term>& terms) {
  if ((operands & (operands - 1)) == 0) {
    size_t place = 0;
    while ((operands >> place) % 2 == 0) ++place;
    return terms[place];
  }
  GP_TRY(const Term a, product(parts_[operands], terms));
  GP_TRY(const Term b, product(operands ^ parts_[operands], terms));
  const bool is_last = operands == (Set{1} << terms.size()) - 1;
  Term made{.value = {}, .labels = is_last ? result_ : labels_of(operands)};
  GP_TRY(const std::optional<ValueId> multiplied, matrix_product(a, b, made.labels));
  if (multiplied) {
    made.value = *multiplied;
    return made;
  }
  GP_TRY(made.value, context_.emit_one("Einsum", {a.value, b.value},
                                       {{"equation", text(a.labels, ",", b.labels, "->", made.labels)}}));
  return made;
}

/// A stack of products of matrices, as attention is written, if it is one: labels that all three have, one that is
/// summed over, and one of each operand. Passes know such products as MatMul.
Result<std::optional<ValueId>> Contraction::matrix_product(const Term& a, const Term& b, const std::string& labels) {
  std::string stack, rows, inner, columns;
  for (const char label : labels) {
    const bool is_left = a.labels.find(label) != std::string::npos,
               is_right = b.labels.find(label) != std::string::npos;
    (is_left && is_right ? stack : is_left ? rows : columns) += label;
  }
  for (const char label : a.labels)
    if (labels.find(label) == std::string::npos) inner += label;
  const auto is_one_of_fixed_size = [this](const std::string& of) {
    return of.size() == 1 && sizes_.at(of[0]).is_fixed();
  };
  if (stack.empty() || !is_one_of_fixed_size(rows) || !is_one_of_fixed_size(inner) || !is_one_of_fixed_size(columns))
    return std::optional<ValueId>();
  GP_TRY(const ValueId left, turned(a, stack + rows + inner));
  GP_TRY(const ValueId right, turned(b, stack + inner + columns));
  GP_TRY(const ValueId multiplied, context_.emit_one("MatMul", {left, right}, {}));
  GP_TRY(const ValueId result, turned({multiplied, stack + rows + columns}, labels));
  return std::optional(result);
}

Status Contraction::finish(Term term) {
  GP_TRY(term.value, turned(term, result_));
  GP_TRY(const ValueId original, context_.value(0));
  if (term.value == original && equation_.operands.size() == 1) context_.bind_alias();
  else context_.bind(0, term.value);
  return Ok{};
}

Status Contraction::run() {
  GP_TRY_VOID(read_equation());
  GP_TRY_VOID(read_sizes());
  std::vector<Term> terms;
  for (size_t i = 0; i < equation_.operands.size(); ++i) {
    GP_TRY(const ValueId value, context_.value(i));
    terms.push_back({value, equation_.operands[i]});
    GP_TRY_VOID(bring_to_letters(terms[i], i));
  }
  for (size_t i = 0; i < terms.size(); ++i) {
    GP_TRY_VOID(sum_alone(terms[i], i));
    equation_.operands[i] = terms[i].labels;
  }
  if (terms.size() > 1) find_order();
  GP_TRY(Term made, product((Set{1} << terms.size()) - 1, terms));
  return finish(std::move(made));
}

Status lower_einsum(NodeContext& context) { return Contraction(context).run(); }

}  // namespace

std::vector<HandlerEntry> einsum_handlers() { return {{"Einsum", lower_einsum}}; }

}  // namespace graphpipe::frontend
