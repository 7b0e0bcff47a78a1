#include "wire/data_table.h"

#include <algorithm>
#include <charconv>

#include "support/text.h"

namespace graphpipe::wire {
namespace {

constexpr std::string_view kDataHeader = "graphpipe-data 3";
constexpr std::string_view kMainWeights = "main weights divided";
constexpr std::string_view kTied = "tied ";
constexpr size_t kMaxDims = 64;

// "[0,48)", then perhaps "ignored" and a number.
bool parse_bounds(const std::vector<std::string_view>& words, IdBounds& bounds) {
  const std::string_view range = words[0];
  const size_t comma = range.find(',');
  if (range.size() < 5 || range.front() != '[' || range.back() != ')' || comma == std::string_view::npos) return false;
  if (!read_number(range.substr(1, comma - 1), bounds.low) ||
      !read_number(range.substr(comma + 1, range.size() - comma - 2), bounds.high) || !bounds.bounded())
    return false;
  if (words.size() == 1) return true;
  bounds.has_ignored = true;
  return words.size() == 3 && words[1] == "ignored" && read_number(words[2], bounds.ignored);
}

bool parse_entry(const std::vector<std::string_view>& words, DataEntry& entry) {
  if (words.size() < 6 || words[0] != "input" || words[3] != "axis") return false;
  const std::optional<std::string> name = decoded_name(words[1]);
  const ElementTypeInfo* type = find_element_type(&ElementTypeInfo::long_name, words[2]);
  const std::optional<std::vector<int64_t>> dims = parse_shape(words[5]);
  int32_t axis = -1;
  if (!name || !type || !dims || !read_number(words[4], axis) || axis < -1) return false;
  entry = {.name = *name, .type = type->type, .batch_axis = axis, .dims = *dims, .ids = {}};
  if (entry.has_samples() && (static_cast<size_t>(axis) >= entry.dims.size() || entry.dims[0] < 1)) return false;
  if (words.size() == 6) return true;
  return words.size() > 7 && words[6] == "ids" && !type->is_floating &&
         parse_bounds({words.begin() + 7, words.end()}, entry.ids);
}

// "together 2 of 4", and perhaps "always"
bool parse_together(const std::vector<std::string_view>& words, TogetherRow& row) {
  row.always = words.size() == 5 && words[4] == "always";
  return (words.size() == 4 || row.always) && words[2] == "of" && read_number(words[1], row.fewest) && row.fewest > 1 &&
         read_number(words[3], row.micro_batch) && row.micro_batch >= row.fewest;
}

}  // namespace

std::optional<std::string> decoded_name(std::string_view word) {
  std::string out;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '%') {
      out += word[i];
      continue;
    }
    unsigned byte = 0;
    const char* begin = word.data() + i + 1;
    if (i + 3 > word.size() || std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::string encoded_name(const std::string& name) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f && c != '%') out += c;
    else out.append(1, '%').append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return out;
}

std::string shape_text(std::span<const int64_t> dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(dims[i]);
  return out + "]";
}

std::optional<std::vector<int64_t>> parse_shape(std::string_view word) {
  if (word.size() < 2 || word.front() != '[' || word.back() != ']') return std::nullopt;
  std::vector<int64_t> dims;
  word = word.substr(1, word.size() - 2);
  if (word.empty()) return dims;
  for (const std::string_view part : split(word, ",")) {
    int64_t dim = -1;
    if (!read_number(part, dim) || dim < 0 || dims.size() == kMaxDims) return std::nullopt;
    dims.push_back(dim);
  }
  return dims;
}

std::string print_data_table(const DataTable& table) {
  std::string out = text(kDataHeader, "\nbatch ", table.batch, "\nrandom ", table.draws_random ? "yes" : "no",
                         "\nscaled ", table.scales_loss ? "yes" : "no", "\nsteps ", table.whole_steps ? "whole" : "any",
                         "\n", table.divides_main_weights ? kMainWeights : "", table.divides_main_weights ? "\n" : "");
  for (const TogetherRow& row : table.together)
    out += text("together ", row.fewest, " of ", row.micro_batch, row.always ? " always\n" : "\n");
  for (const std::string& name : table.tied_names) out += text(kTied, encoded_name(name), "\n");
  for (const DataEntry& entry : table.entries) {
    out += text("input ", encoded_name(entry.name), " ", element_name(entry.type), " axis ", entry.batch_axis, " ",
                shape_text(entry.dims));
    if (entry.ids.bounded()) out += text(" ids [", entry.ids.low, ",", entry.ids.high, ")");
    if (entry.ids.bounded() && entry.ids.has_ignored) out += text(" ignored ", entry.ids.ignored);
    out += "\n";
  }
  return out;
}

std::optional<DataTable> parse_data_table(std::string_view text) {
  DataTable table;
  std::vector<std::string_view> lines = split(text, "\n");
  if (lines.size() < 6 || lines[0] != kDataHeader || !lines.back().empty()) return std::nullopt;
  lines.pop_back();
  if (!lines[1].starts_with("batch ") || !read_number(lines[1].substr(6), table.batch) || table.batch < 1)
    return std::nullopt;
  table.draws_random = lines[2] == "random yes";
  if (!table.draws_random && lines[2] != "random no") return std::nullopt;
  table.scales_loss = lines[3] == "scaled yes";
  if (!table.scales_loss && lines[3] != "scaled no") return std::nullopt;
  table.whole_steps = lines[4] == "steps whole";
  if (!table.whole_steps && lines[4] != "steps any") return std::nullopt;
  size_t first = 5;
  table.divides_main_weights = first < lines.size() && lines[first] == kMainWeights;
  if (table.divides_main_weights) ++first;
  for (; first < lines.size() && lines[first].starts_with("together "); ++first)
    if (!parse_together(split(lines[first], " "), table.together.emplace_back())) return std::nullopt;
  for (; first < lines.size() && lines[first].starts_with(kTied); ++first) {
    std::optional<std::string> name = decoded_name(lines[first].substr(kTied.size()));
    if (!name) return std::nullopt;
    table.tied_names.push_back(*std::move(name));
  }
  for (size_t i = first; i < lines.size(); ++i)
    if (!parse_entry(split(lines[i], " "), table.entries.emplace_back())) return std::nullopt;
  return table;
}

}  // namespace graphpipe::wire
