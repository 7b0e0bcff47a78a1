#include "frontend/folding_note.h"

namespace graphpipe::frontend {
namespace {

/// Notes name the values of one computation; what takes more is none.
constexpr size_t kMaxNote = size_t{64} << 10;

}  // namespace

std::vector<std::string> parse_names(std::string_view text) {
  constexpr std::string_view kQuote = "'", kNext = ", ";
  if (!text.starts_with('[') || !text.ends_with(']') || text.find('\\') != text.npos) return {};
  text = text.substr(1, text.size() - 2);
  std::vector<std::string> names;
  while (text.starts_with(kQuote)) {
    const size_t end = text.find(kQuote, 1);
    if (end == text.npos) return {};
    names.emplace_back(text.substr(1, end - 1));
    text.remove_prefix(end + 1);
    if (text.empty()) return names;
    if (!text.starts_with(kNext)) return {};
    text.remove_prefix(kNext.size());
  }
  return {};
}

bool may_be_folding_note(std::string_view metadata) {
  return metadata.size() <= kMaxNote && metadata.find(kFoldingNote) != metadata.npos;
}

std::string_view call_of_value(std::string_view value) {
  const size_t bar = value.rfind('_');
  const bool has_number = bar != value.npos && bar > 0 && bar + 1 < value.size() &&
                          value.find_first_not_of("0123456789", bar + 1) == value.npos;
  return has_number ? value.substr(0, bar) : value;
}

}  // namespace graphpipe::frontend
