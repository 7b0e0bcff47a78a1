#include "wire/rank_words.h"

#include <algorithm>

#include "support/text.h"

namespace graphpipe::wire {
namespace {

/// Fields that end in a zero byte, which no argument holds.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text) : text_(text) {}
  bool at_end() const { return text_.empty(); }

  bool read(std::string& field) {
    const size_t end = text_.find('\0');
    if (end == std::string_view::npos) return false;
    field = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool read(int& number) {
    std::string field;
    return read(field) && read_number(field, number) && number >= 0;
  }
  /// A number of fields, and these.
  template <typename Field>
  bool read(std::vector<Field>& fields) {
    int count = 0;
    if (!read(count) || static_cast<size_t>(count) > text_.size()) return false;
    fields.resize(static_cast<size_t>(count));
    return std::ranges::all_of(fields, [&](Field& field) { return read(field); });
  }

 private:
  std::string_view text_;
};

}  // namespace

std::string rank_words_text(const std::vector<RankWords>& ranks) {
  std::string text;
  const auto add = [&](const auto& field) {
    text += graphpipe::text(field);
    text += '\0';
  };
  for (const RankWords& rank : ranks) {
    add(rank.output);
    add(rank.go);
    add(rank.descriptors.size());
    std::ranges::for_each(rank.descriptors, add);
    add(rank.arguments.size());
    std::ranges::for_each(rank.arguments, add);
  }
  return text;
}

std::optional<std::vector<RankWords>> parse_rank_words(std::string_view text) {
  std::vector<RankWords> ranks;
  for (FieldReader reader(text); !reader.at_end();) {
    RankWords& rank = ranks.emplace_back();
    const bool is_whole = reader.read(rank.output) && reader.read(rank.go) && reader.read(rank.descriptors) &&
                          reader.read(rank.arguments) && !rank.arguments.empty();
    if (!is_whole) return std::nullopt;
  }
  return ranks;
}

}  // namespace graphpipe::wire
