#include "wire/parameter_group.h"

#include <algorithm>

#include "wire/run/flag.h"

namespace graphpipe::wire {

std::optional<ParameterGroup> parse_parameter_group(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  ParameterGroup group{.pattern = std::string(text.substr(0, colon)), .learning_rate = {}, .weight_decay = {}};
  // Several groups travel as lines.
  if (group.pattern.find('\n') != std::string::npos) return std::nullopt;
  std::string_view rest = text.substr(colon + 1);
  do {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = item.substr(0, equals);
    std::optional<double>* number = key == "lr"             ? &group.learning_rate
                                    : key == "weight-decay" ? &group.weight_decay
                                                            : nullptr;
    if (number == nullptr || number->has_value() || equals == item.size()) return std::nullopt;
    if (!read_value(std::string(item.substr(equals + 1)), *number)) return std::nullopt;
  } while (!rest.empty());
  return group;
}

std::string parameter_group_text(const ParameterGroup& group) {
  std::string text = group.pattern + ":";
  if (group.learning_rate) text += "lr=" + write_value(*group.learning_rate);
  if (group.weight_decay)
    text += std::string(group.learning_rate ? "," : "") + "weight-decay=" + write_value(*group.weight_decay);
  return text;
}

}  // namespace graphpipe::wire
