#include "frontend/looked_up_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "frontend/call_operands.h"
#include "frontend/folding_note.h"
#include "frontend/lost_by_export.h"
#include "frontend/parameter_names.h"
#include "support/text.h"

namespace graphpipe::frontend {
namespace {

constexpr std::array<std::string_view, 3> kLookUps = {"embedding", "index", "index_select"};

/// What torch.export names the results of calls whose elements are those of their operand. A detached value is none: no
/// gradient passes it.
constexpr std::array<std::string_view, 18> kMoves = {
    "_unsafe_view", "alias", "clone",   "contiguous", "expand",    "flatten",     "numpy_t",   "permute",   "reshape",
    "select",       "slice", "squeeze", "t",          "transpose", "unsafe_view", "unflatten", "unsqueeze", "view"};

/// Calls that make constants, which have no part in the elements of a table.
constexpr std::array<std::string_view, 4> kConstants = {"arange", "full_like", "scalar_tensor_default", "zeros_like"};

/// Calls that find the numbers of rows by whole numbers, from arange() or a buffer.
constexpr std::array<std::string_view, 22> kOfNumbers = {
    "_to_copy", "abs", "add", "bitwise_and", "clamp",   "clamp_max", "clamp_min", "cumsum", "detach", "eq",  "ge",
    "gt",       "le",  "lt",  "logical_and", "maximum", "minimum",   "ne",        "neg",    "rsub",   "sub", "where"};

using CallCounts = std::map<std::string_view, int64_t>;

/// The calls that compute the numbers of relative positions, all of which these need.
bool are_of_positions(const CallCounts& counts) {
  // of T5's encoder: (position > 0) * buckets + where(|position| is small, |position|, logarithm of it)
  const auto encoder = [](int64_t additions) {
    return CallCounts{{"_to_copy", 3}, {"abs", 1},     {"add", additions}, {"div", 2}, {"gt", 1},   {"log", 1},
                      {"lt", 1},       {"minimum", 1}, {"mul", 2},         {"sub", 1}, {"where", 1}};
  };
  // of its decoder: the same of -minimum(position, 0)
  const auto decoder = [](int64_t additions) {
    return CallCounts{{"_to_copy", 2}, {"add", additions}, {"div", 2}, {"log", 1}, {"lt", 1},
                      {"minimum", 2},  {"mul", 1},         {"neg", 1}, {"sub", 1}, {"where", 1}};
  };
  static const std::vector<CallCounts> kPrograms = {
      encoder(3),
      encoder(4),  // positions begin behind those of a cache
      decoder(2),
      decoder(3),
      // MPNet's, whose position has the other sign
      {{"_to_copy", 3},
       {"abs", 1},
       {"add", 3},
       {"div", 2},
       {"log", 1},
       {"lt", 2},
       {"minimum", 1},
       {"mul", 2},
       {"neg", 1},
       {"sub", 1},
       {"where", 1}},
  };
  return std::ranges::find(kPrograms, counts) != kPrograms.end();
}

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& calls, std::string_view call) {
  return std::ranges::find(calls, call) != calls.end();
}

/// The calls of the note that compute something.
CallCounts computing_calls(const std::vector<std::string>& names, const ExportSignature& signature) {
  CallCounts counts;
  for (const std::string& name : names) {
    const std::string_view call = call_of_value(name);
    const bool is_tensor = signature.is_parameter.contains(name) || name.find('.') != name.npos;
    if (!is_tensor && !is_anonymous(name) && !is_constant_maker(name) && !is_one_of(kMoves, call) &&
        !is_one_of(kLookUps, call) && !is_one_of(kConstants, call))
      ++counts[call];
  }
  return counts;
}

/// Whether the signature lists it as the one tensor of its module, as nn.Embedding's weight is.
bool is_alone_in_module(const std::string& parameter, const ExportSignature& signature) {
  const auto [module, component] = split_name(parameter);
  const std::string begin = module.empty() ? "" : text(module, ".");
  return component == "weight" && std::ranges::count_if(signature.is_parameter, [&](const auto& listed) {
                                    return listed.first.starts_with(begin);
                                  }) == 1;
}

/// Whether the calls may find the numbers of rows of a table that nothing computes.
bool may_be_of_numbers(const CallCounts& counts, const std::vector<std::string>& names,
                       const ExportSignature& signature) {
  int64_t parameters = 0, buffers = 0;
  for (const std::string& name : names) {
    const auto listed = signature.is_parameter.find(name);
    if (listed == signature.is_parameter.end()) continue;
    if (listed->second && !is_alone_in_module(name, signature)) return false;
    ++(listed->second ? parameters : buffers);
  }
  return parameters == 1 && buffers < 2 &&
         std::ranges::all_of(counts, [](const auto& counted) { return is_one_of(kOfNumbers, counted.first); });
}

/// The elements with those of the axis last: the vectors along it, in the order of the other axes.
std::string with_axis_last(const std::vector<int64_t>& dims, size_t axis, std::string_view elements, size_t width) {
  size_t inner = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) inner *= static_cast<size_t>(dims[i]);
  const auto size = static_cast<size_t>(dims[axis]);
  const size_t outer = elements.size() / (inner * size * width);
  std::string moved;
  moved.reserve(elements.size());
  for (size_t o = 0; o < outer; ++o)
    for (size_t i = 0; i < inner; ++i)
      for (size_t k = 0; k < size; ++k) moved += elements.substr(((o * size + k) * inner + i) * width, width);
  return moved;
}

RowsByPlace rows_along(const std::vector<int64_t>& dims, size_t axis, std::string_view elements, size_t width) {
  RowsByPlace rows{.axis = axis};
  const std::string vectors = with_axis_last(dims, axis, elements, width);
  const size_t bytes = static_cast<size_t>(dims[axis]) * width;
  std::map<std::string_view, int64_t> known;
  for (size_t at = 0; at < vectors.size(); at += bytes) {
    const std::string_view row = std::string_view(vectors).substr(at, bytes);
    const auto [found, is_new] = known.try_emplace(row, rows.count);
    rows.numbers.push_back(found->second);
    if (!is_new) continue;
    rows.elements += row;
    ++rows.count;
  }
  return rows;
}

/// Whether some row has one number everywhere, as rows do that began with it, or that padding_idx keeps untrained.
bool has_uniform_row(const RowsByPlace& rows, size_t row_bytes, size_t width) {
  for (size_t at = 0; at < rows.elements.size(); at += row_bytes)
    if (is_uniform(std::string_view(rows.elements).substr(at, row_bytes), width)) return true;
  return false;
}

/// The axes of the places, without those of one.
std::vector<size_t> sides_of(const std::vector<int64_t>& dims, size_t axis) {
  std::vector<size_t> sides;
  for (size_t i = 0; i < dims.size(); ++i)
    if (i != axis && dims[i] > 1) sides.push_back(static_cast<size_t>(dims[i]));
  return sides;
}

/// Whether the places are those of squares, and each reads the row of the one across the diagonal.
bool are_mirrored(const std::vector<int64_t>& dims, const RowsByPlace& rows) {
  const std::vector<size_t> sides = sides_of(dims, rows.axis);
  const auto root = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(rows.numbers.size()))));
  const size_t side = sides.size() == 1 ? root : sides.empty() ? 1 : sides.back();
  if (sides.size() == 1 ? side * side != rows.numbers.size() : sides.size() > 1 && sides[sides.size() - 2] != side)
    return false;
  for (size_t at = 0; at < rows.numbers.size(); ++at) {
    const size_t i = at / side % side, j = at % side;
    if (rows.numbers[at] != rows.numbers[at - i * side - j + j * side + i]) return false;
  }
  return true;
}

}  // namespace

std::optional<LookUpCalls> look_up_calls(const std::string& tensor, const std::string& note,
                                         const ExportSignature& signature) {
  if (signature.lists_parameter(tensor)) return std::nullopt;
  LookUpCalls calls;
  CallCounts counts;  // of those that compute
  bool has_buffer = false;
  int64_t look_ups = 0;
  std::vector<std::string> names = parse_names(note);
  names.push_back(tensor);
  for (const std::string& name : names) {
    const std::string_view call = call_of_value(name);
    if (signature.lists_parameter(name)) {
      if (!calls.table.empty()) return std::nullopt;
      calls.table = name;
    } else if (signature.is_parameter.contains(name)) {
      has_buffer = true;
    } else if (is_one_of(kLookUps, call)) {
      ++look_ups;
    } else if (!is_anonymous(name) && !is_one_of(kMoves, call) && !is_one_of(kConstants, call)) {
      ++counts[call];
    }
    calls.is_expanded = calls.is_expanded || call == "expand";
  }
  calls.has_positions = !counts.empty();
  if (calls.table.empty() || look_ups == 0) return std::nullopt;
  if (calls.has_positions && (has_buffer || look_ups > 1 || !are_of_positions(counts))) return std::nullopt;
  return calls;
}

bool computes_with_elements(const std::string& tensor, const std::string& note, const ExportSignature& signature) {
  const std::vector<std::string> names = parse_names(note);
  const CallCounts counts = computing_calls(names, signature);
  if (counts.empty() || are_of_positions(counts)) return false;
  const auto is_look_up = [](const std::string& name) { return is_one_of(kLookUps, call_of_value(name)); };
  const bool has_look_up =
      is_look_up(tensor) || tensor.ends_with(kRowsSuffix) || std::ranges::any_of(names, is_look_up);
  return !has_look_up || !may_be_of_numbers(counts, names, signature);
}

std::vector<std::string> calls_of_numbers(const std::string& note, const ExportSignature& signature) {
  const CallCounts counts = computing_calls(parse_names(note), signature);
  std::vector<std::string> calls;
  if (!are_of_positions(counts))
    for (const auto& [call, count] : counts) calls.emplace_back(call);
  return calls;
}

bool are_distinct(std::string_view elements, size_t element_bytes) {
  std::set<std::string_view> distinct;
  for (size_t at = 0; at < elements.size(); at += element_bytes) distinct.insert(elements.substr(at, element_bytes));
  const size_t count = elements.size() / element_bytes;
  constexpr size_t kPairsOfOneByChance = size_t{1} << 23;
  return count - distinct.size() <= count * count / kPairsOfOneByChance;
}

std::optional<RowsByPlace> rows_by_place(const std::vector<int64_t>& dims, std::string_view elements,
                                         size_t element_bytes) {
  constexpr size_t kMaxAxes = 8;  // each takes as long as the first
  if (elements.size() / element_bytes > kMaxElementsInRows || dims.size() > kMaxAxes) return std::nullopt;
  std::optional<RowsByPlace> best;
  for (size_t axis = 0; axis < dims.size() && !elements.empty(); ++axis) {
    if (dims[axis] < 2) continue;
    RowsByPlace rows = rows_along(dims, axis, elements, element_bytes);
    if (!best || rows.elements.size() < best->elements.size()) best = std::move(rows);
  }
  if (!best) return std::nullopt;
  const auto row_bytes = static_cast<size_t>(dims[best->axis]) * element_bytes;
  // Along an axis into which places are merged, a row that stands twice leaves equal elements.
  if (!are_distinct(best->elements, element_bytes) || has_uniform_row(*best, row_bytes, element_bytes) ||
      are_mirrored(dims, *best))
    return std::nullopt;
  return best;
}

bool are_of_diagonals(const std::vector<int64_t>& dims, const RowsByPlace& rows) {
  const std::vector<size_t> sides = sides_of(dims, rows.axis);
  if (sides.size() != 2) return false;
  for (size_t at = sides[1] + 1; at < rows.numbers.size(); ++at)
    if (at % sides[1] != 0 && rows.numbers[at] != rows.numbers[at - sides[1] - 1]) return false;
  return true;
}

}  // namespace graphpipe::frontend
