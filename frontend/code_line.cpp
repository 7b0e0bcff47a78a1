#include "frontend/code_line.h"

#include <algorithm>
#include <charconv>

#include "support/text.h"

namespace graphpipe::frontend {
namespace {

constexpr std::string_view kSelf = "self.";
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

bool is_of_name(char c) { return kOfNames.find(c) != kOfNames.npos; }

/// A line without spaces, but for those between words.
std::string compact(std::string_view line) {
  std::string result;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool parts_words =
        i + 1 < line.size() && !result.empty() && is_of_name(result.back()) && is_of_name(line[i + 1]);
    if (line[i] != ' ' || parts_words) result += line[i];
  }
  return result;
}

/// Where the only "self.member" begins.
std::optional<size_t> only_place(std::string_view line, std::string_view member) {
  const std::string name = text(kSelf, member);
  std::optional<size_t> place;
  for (size_t at = line.find(name); at != line.npos; at = line.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at > 0 && (is_of_name(line[at - 1]) || line[at - 1] == '.')) || (end < line.size() && is_of_name(line[end])))
      continue;
    if (place) return std::nullopt;
    place = at;
  }
  return place;
}

/// The end of the brackets that open here, or nothing.
std::optional<size_t> end_of_brackets(std::string_view line, size_t at) {
  int depth = 0;
  for (; at < line.size(); ++at) {
    depth += line[at] == '(' || line[at] == '[' ? 1 : line[at] == ')' || line[at] == ']' ? -1 : 0;
    if (depth == 0) return at + 1;
  }
  return std::nullopt;
}

/// Calls, attributes and subscripts that follow one another.
std::optional<std::string_view> calls_at(std::string_view line, size_t at) {
  const size_t begin = at;
  while (at < line.size()) {
    if (line[at] == '.') {
      at = std::min(line.find_first_not_of(kOfNames, at + 1), line.size());
    } else if (line[at] == '(' || line[at] == '[') {
      const std::optional<size_t> end = end_of_brackets(line, at);
      if (!end) return std::nullopt;
      at = *end;
    } else {
      break;
    }
  }
  return line.substr(begin, at - begin);
}

/// Whether what begins here is an operand of a product, a sum or an assignment, as it is.
bool is_plain_operand(std::string_view line, size_t at) {
  constexpr std::string_view kReturn = "return ";
  const std::string_view before = line.substr(0, at);
  if (before.empty() || before.ends_with(kReturn)) return true;
  const char last = before.back();
  if (last == '(') return before.size() < 2 || !is_of_name(before[before.size() - 2]);
  if (last == '*') return !before.ends_with("**");
  return last == '+' || last == '=';
}

std::optional<double> number_in(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789.") != text.npos || kDigits.find(text[0]) == kDigits.npos)
    return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

std::set<std::string> members_in(std::string_view line) {
  constexpr size_t kLongestName = 1024;  // each member of a member is a name with all before it
  std::set<std::string> members;
  for (size_t at = line.find(kSelf); at != line.npos; at = line.find(kSelf, at)) {
    at += kSelf.size();
    size_t end = at;
    do {
      end = std::min(line.find_first_not_of(kOfNames, end), line.size());
      members.emplace(line.substr(at, end - at));
    } while (end < line.size() && line[end] == '.' && ++end < line.size() &&
             end - at < kLongestName);  // or a method of it
  }
  return members;
}

std::optional<std::string> calls_on_member(std::string_view line, std::string_view member) {
  const std::string code = compact(line);
  const std::optional<size_t> at = only_place(code, member);
  if (!at || !is_plain_operand(code, *at)) return std::nullopt;
  const std::optional<std::string_view> calls = calls_at(code, *at + kSelf.size() + member.size());
  return calls ? std::optional<std::string>(*calls) : std::nullopt;
}

std::vector<std::string> members_called_alike(std::string_view line, std::string_view member) {
  constexpr size_t kLongestLine = 4096;  // each member takes as long as the line
  if (line.size() > kLongestLine) return {};
  const std::string code = compact(line);
  const std::optional<size_t> place = only_place(code, member);
  const auto calls = place ? calls_at(code, *place + kSelf.size() + member.size()) : std::nullopt;
  if (!calls || calls->empty()) return {};
  std::vector<std::string> members;
  for (size_t at = code.find(kSelf); at != code.npos; at = code.find(kSelf, at + 1)) {
    if (at > 0 && (is_of_name(code[at - 1]) || code[at - 1] == '.')) continue;
    const size_t begin = at + kSelf.size(), end = std::min(code.find_first_not_of(kOfNames, begin), code.size());
    if (calls_at(code, end) == calls) members.push_back(code.substr(begin, end - begin));
  }
  return members;
}

std::optional<double> number_added(std::string_view line, std::string_view member) {
  constexpr std::string_view kCast = ".float()";
  const std::string code = compact(line);
  const std::optional<size_t> at = only_place(code, member);
  if (!at) return std::nullopt;
  std::string_view before = std::string_view(code).substr(0, *at);
  std::string_view behind = std::string_view(code).substr(*at + kSelf.size() + member.size());
  if (behind.starts_with(kCast)) behind.remove_prefix(kCast.size());
  const size_t open = before.rfind('('), close = behind.find(')');
  if (open == before.npos || close == behind.npos || (open > 0 && is_of_name(before[open - 1]))) return std::nullopt;
  before.remove_prefix(open + 1);
  behind = behind.substr(0, close);
  if (behind.empty() && before.ends_with('+')) return number_in(before.substr(0, before.size() - 1));
  if (before.empty() && behind.starts_with('+')) return number_in(behind.substr(1));
  return std::nullopt;
}

bool calls_function(std::string_view line, std::string_view function) {
  const std::string code = compact(line), call = text(function, "(");
  for (size_t at = code.find(call); at != code.npos; at = code.find(call, at + 1))
    if (at == 0 || (!is_of_name(code[at - 1]) && code[at - 1] != '.')) return true;
  return false;
}

}  // namespace graphpipe::frontend
