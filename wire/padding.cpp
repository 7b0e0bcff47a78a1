#include "wire/padding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/exact_integer.h"
#include "wire/element_bytes.h"
#include "wire/run/flag.h"

namespace graphpipe::wire {
namespace {

/// Paddings are doubles.
constexpr auto kMaxExact = static_cast<double>(kMaxExactInteger);

bool holds(ElementType type, double number) {
  if (kElementTypes[static_cast<size_t>(type)].is_floating) return true;
  if (type == ElementType::kBool) return number == 0 || number == 1;
  const int bits = static_cast<int>(8 * element_size(type));
  const bool is_unsigned = type == ElementType::kUInt8;
  const double high = std::ldexp(1.0, is_unsigned ? bits : bits - 1), low = is_unsigned ? 0 : -high;
  return std::nearbyint(number) == number && number >= low && number < high && std::abs(number) <= kMaxExact;
}

Diagnostic usage(const Padding& padding, std::string message, std::string hint) {
  return {.code = Code::kUsage,
          .origin = ModelText("--pad " + write_padding(padding)),
          .message = std::move(message),
          .hint = std::move(hint)};
}

Status check_padding(const Padding& padding, const DataEntry& entry) {
  if (!is_computed_in(entry.type) || !holds(entry.type, padding.number))
    return usage(padding, text("the model takes ", element_name(entry.type), " there, which has no such number"),
                 "fill up with a number of that type");
  const bool is_id = entry.ids.bounded() && !kElementTypes[static_cast<size_t>(entry.type)].is_floating;
  if (is_id && entry.type != ElementType::kBool && !entry.ids.hold(static_cast<int64_t>(padding.number))) {
    std::string hint = text("fill up with a number from ", entry.ids.low, " to ", entry.ids.high - 1);
    if (entry.ids.has_ignored) hint += text(", or ", entry.ids.ignored, " for what does not count");
    return usage(padding, "no row or class of the model has this number", std::move(hint));
  }
  return Ok{};
}

}  // namespace

bool read_padding(const std::string& word, std::vector<Padding>& paddings) {
  const size_t equals = word.rfind('=');
  if (equals == std::string::npos || equals == 0) return false;
  const std::string name = word.substr(0, equals);
  Padding padding{.name = decoded_name(name).value_or(name)};
  if (!read_number(std::string_view(word).substr(equals + 1), padding.number) || !std::isfinite(padding.number))
    return false;
  paddings.push_back(std::move(padding));
  return true;
}

std::string write_padding(const Padding& padding) {
  const bool is_whole = std::abs(padding.number) <= kMaxExact && std::nearbyint(padding.number) == padding.number;
  return text(encoded_name(padding.name), "=",
              is_whole ? std::to_string(static_cast<int64_t>(padding.number)) : write_value(padding.number));
}

std::string write_paddings(const std::vector<Padding>& paddings) {
  std::string words;
  for (const Padding& padding : paddings) words += (words.empty() ? "" : "\n") + write_padding(padding);
  return words;
}

Result<DataTable> with_paddings(DataTable table, const std::vector<Padding>& paddings) {
  Diagnostics problems;
  for (const Padding& padding : paddings) {
    const auto other = std::ranges::find(paddings, padding.name, &Padding::name);
    if (other->number != padding.number)
      problems.push_back(usage(padding, "another --pad fills the same input with another number", "leave one out"));
    const auto entry = std::ranges::find(table.entries, padding.name, &DataEntry::name);
    if (entry == table.entries.end()) {
      std::string names;
      for (const DataEntry& other : table.entries)
        names += text(names.empty() ? "" : ", ", quoted(ModelText(other.name)));
      problems.push_back(usage(padding, "the plan reads no such input", "it reads " + names));
      continue;
    }
    const Status fits = check_padding(padding, *entry);
    if (!fits.ok()) problems.insert(problems.end(), fits.problems().begin(), fits.problems().end());
    else entry->fill = element_bytes(entry->type, padding.number);
  }
  if (!problems.empty()) return problems;
  return table;
}

void copy_padded(std::span<const std::byte> array, std::span<const int64_t> from, const std::string& element,
                 std::span<const int64_t> to, std::span<std::byte> padded) {
  for (size_t at = 0; at < padded.size(); at += element.size())
    std::memcpy(padded.data() + at, element.data(), element.size());
  // The rows of the last axis, each at its place.
  const size_t rank = from.size(), row = static_cast<size_t>(from[rank - 1]) * element.size();
  std::vector<int64_t> index(rank, 0);
  for (size_t done = 0; done < array.size(); done += row) {
    size_t place = 0;
    for (size_t axis = 0; axis < rank; ++axis)
      place = place * static_cast<size_t>(to[axis]) + static_cast<size_t>(index[axis]);
    std::memcpy(padded.data() + place * element.size(), array.data() + done, row);
    for (size_t axis = rank - 1; axis-- > 0;) {
      if (++index[axis] < from[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace graphpipe::wire
