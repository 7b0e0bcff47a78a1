#include "ops/emit_helpers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace graphpipe::ops {
namespace {

template <typename T>
std::string braced(const std::vector<T>& values) {
  std::string result = "{";
  for (size_t i = 0; i < values.size(); ++i) result += text(i == 0 ? "" : ", ", values[i]);
  return result + "}";
}

}  // namespace

std::string integer(int64_t value) { return value == INT64_MIN ? "(-9223372036854775807 - 1)" : text(value); }

std::string number(double value) {
  if (std::isnan(value)) return "std::numeric_limits<double>::quiet_NaN()";
  if (std::isinf(value)) return text(value < 0 ? "-" : "", "std::numeric_limits<double>::infinity()");
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string result(digits.data(), end);
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

std::string epsilon_text(const NodeView& node) { return number(node.attributes().get_double("epsilon", 1e-5)); }

std::string list(const std::vector<int64_t>& values) { return braced(values); }
std::string list(const std::vector<int>& values) { return braced(values); }
std::string boolean(bool value) { return value ? "true" : "false"; }

std::string scalar_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kFloat32:
      return "at::kFloat";
    case ir::DType::kFloat64:
      return "at::kDouble";
    case ir::DType::kFloat16:
      return "at::kHalf";
    case ir::DType::kBFloat16:
      return "at::kBFloat16";
    case ir::DType::kInt64:
      return "at::kLong";
    case ir::DType::kInt32:
      return "at::kInt";
    case ir::DType::kInt16:
      return "at::kShort";
    case ir::DType::kInt8:
      return "at::kChar";
    case ir::DType::kUInt8:
      return "at::kByte";
    case ir::DType::kBool:
      return "at::kBool";
    case ir::DType::kUInt16:
      return "at::kUInt16";
    case ir::DType::kUInt32:
      return "at::kUInt32";
    case ir::DType::kUInt64:
      return "at::kUInt64";
    case ir::DType::kFloat8E4M3FN:
      return "at::kFloat8_e4m3fn";
    case ir::DType::kFloat8E4M3FNUZ:
      return "at::kFloat8_e4m3fnuz";
    case ir::DType::kFloat8E5M2:
      return "at::kFloat8_e5m2";
    case ir::DType::kFloat8E5M2FNUZ:
      return "at::kFloat8_e5m2fnuz";
    case ir::DType::kFloat8E8M0:
      return "at::kFloat8_e8m0fnu";
    // One element per byte.
    case ir::DType::kFloat4E2M1:
    case ir::DType::kUInt4:
    case ir::DType::kUInt2:
      return "at::kByte";
    case ir::DType::kInt4:
    case ir::DType::kInt2:
      return "at::kChar";
  }
  GP_CHECK(false);
}

std::string filled_in(const Emitter& emitter, std::string_view pattern) {
  std::string result;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '$') {
      result += pattern[i];
      continue;
    }
    ++i;
    GP_CHECK(i < pattern.size() && pattern[i] >= '0' && pattern[i] <= '9');
    result += emitter.in(static_cast<size_t>(pattern[i] - '0'));
  }
  return result;
}

double temporaries_of(std::string_view pattern) {
  constexpr std::string_view kTruths[] = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_and", "logical_or"};
  double tensors = 0;
  for (size_t at = pattern.find('('); at != pattern.npos; at = pattern.find('(', at + 1)) {
    size_t begin = at;
    while (begin > 0 &&
           (std::isalnum(static_cast<unsigned char>(pattern[begin - 1])) != 0 || pattern[begin - 1] == '_'))
      --begin;
    const std::string_view name = pattern.substr(begin, at - begin);
    if (name.empty() || name.ends_with('_') || name == "expand") continue;
    tensors += std::ranges::find(kTruths, name) != std::end(kTruths) ? 0.25 : 1;
  }
  return std::max(tensors - 1, 0.0);
}

void assign_pattern(Emitter& emitter, std::string_view pattern, std::string_view header) {
  emitter.assign(0, filled_in(emitter, pattern), header);
}

void assign_parts(Emitter& emitter, std::string_view call, std::string_view header, size_t count) {
  const std::string parts = emitter.local("parts");
  emitter.statement(text("auto ", parts, " = ", call), header);
  for (size_t i = 0; i < count; ++i) emitter.assign(i, text("std::move(std::get<", i, ">(", parts, "))"), "");
}

void assign_call(Emitter& emitter, std::string_view function, std::string_view header) {
  std::string arguments;
  for (size_t i = 0; i < emitter.node().input_count(); ++i) {
    if (emitter.node().has_input(i)) arguments += (arguments.empty() ? "" : ", ") + emitter.in(i);
  }
  emitter.assign(0, text(function, "(", arguments, ")"), header);
}

}  // namespace graphpipe::ops
