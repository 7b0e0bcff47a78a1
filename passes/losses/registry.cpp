#include "passes/losses/registry.h"

#include <algorithm>
#include <array>
#include <vector>

namespace graphpipe::passes {

extern const LossDef kCrossEntropyLoss, kMeanSquaredErrorLoss, kBceWithLogitsLoss, kContrastiveLoss, kOutputLoss;

namespace {

// One line per loss.
constexpr std::array kLosses = {
    &kCrossEntropyLoss, &kMeanSquaredErrorLoss, &kBceWithLogitsLoss, &kContrastiveLoss, &kOutputLoss,
};

Diagnostic bad_loss_text(const std::string& flag, std::string message, const char* more = "") {
  return {.code = Code::kUsage,
          .origin = ModelText("--loss " + flag),
          .message = std::move(message),
          .hint = text("write ", loss_forms(), more)};
}

// A comma ends a name; one that belongs to it is written as in addresses of the web.
constexpr std::string_view kComma = "%2C", kPercent = "%25";

std::string name_of(std::string_view word) {
  std::string name;
  for (size_t i = 0; i < word.size(); ++i) {
    const std::string_view here = word.substr(i, kComma.size());
    const bool is_written = here == kComma || here == kPercent;
    name += here == kComma ? ',' : here == kPercent ? '%' : word[i];
    if (is_written) i += kComma.size() - 1;
  }
  return name;
}

std::string word_of(std::string_view name) {
  std::string word;
  for (size_t i = 0; i < name.size(); ++i) {
    const std::string_view here = name.substr(i, kComma.size());
    if (name[i] == ',') word += kComma;
    else if (here == kComma || here == kPercent) word += kPercent;
    else word += name[i];
  }
  return word;
}

/// Reads one option; false if the loss does not accept it in this form.
bool parse_loss_option(const LossDef& loss, std::string_view part, ir::Attributes& options) {
  const size_t equals = part.find('=');
  const auto option = std::ranges::find(loss.options, part.substr(0, equals), &LossOption::name);
  if (option == loss.options.end() || option->has_value != (equals != std::string_view::npos)) return false;
  int64_t number = 1;
  if (option->has_value && !read_number(part.substr(equals + 1), number)) return false;
  if (number < option->low || number > option->high || options.has(option->name)) return false;
  options.set(option->name, number);
  return true;
}

}  // namespace

std::span<const LossDef* const> all_losses() { return kLosses; }

const LossDef* find_loss(std::string_view name) {
  const auto found = std::ranges::find(kLosses, name, &LossDef::name);
  return found == kLosses.end() ? nullptr : *found;
}

std::string loss_form(const LossDef& loss) {
  std::string form = text(loss.name, loss.takes_label ? ":OUTPUT,LABEL" : ":OUTPUT");
  for (const LossOption& option : loss.options) form += text("[,", option.name, option.has_value ? "=N]" : "]");
  return form;
}

std::string loss_forms() {
  std::string forms;
  for (const LossDef* loss : kLosses)
    forms += text(forms.empty() ? "" : loss == kLosses.back() ? " or " : ", ", loss_form(*loss));
  return forms;
}

Result<ir::LossSpec> parse_loss(const std::string& flag) {
  ir::LossSpec spec;
  if (flag.empty()) return spec;
  const size_t colon = flag.find(':');
  const LossDef* loss = colon == std::string::npos ? nullptr : find_loss(flag.substr(0, colon));
  if (loss == nullptr) return bad_loss_text(flag, "the loss is not one that GraphPipe knows");
  spec.kind = loss->name;
  const std::vector<std::string_view> parts = split(std::string_view(flag).substr(colon + 1), ",");
  const size_t names = loss->takes_label ? 2 : 1;
  if (parts.size() < names || parts[0].empty() || parts[names - 1].empty())
    return bad_loss_text(
        flag, loss->takes_label ? "it takes the names of an output and a label" : "it takes an output's name");
  for (const std::string_view name : {parts[0], parts[names - 1]})
    if (name.front() == ' ' || name.back() == ' ')
      return bad_loss_text(flag, text("the name ", quoted(ModelText(std::string(name))), " has a blank at its end"));
  spec.output = ModelText(name_of(parts[0]));
  if (loss->takes_label) spec.label = ModelText(name_of(parts[1]));
  for (size_t i = names; i < parts.size(); ++i)
    if (!parse_loss_option(*loss, parts[i], spec.options))
      return bad_loss_text(
          flag, text("it does not take ", quoted(ModelText(std::string(parts[i])))),
          "; a comma within a name is written %2C; a sum of several losses is made in forward, and is output:NAME");
  return spec;
}

Status check_loss(const ir::LossSpec& spec) {
  const LossDef* loss = find_loss(spec.kind);
  const auto bad = [&](std::string message) {
    return bad_loss(spec.output, std::move(message), "write " + loss_forms());
  };
  if (loss == nullptr) return bad(text("there is no loss ", quoted(ModelText(spec.kind))));
  if (spec.output.empty()) return bad(text("the loss ", spec.kind, " needs an output"));
  if (spec.label.empty() == loss->takes_label)
    return bad(text("the loss ", spec.kind, loss->takes_label ? " needs a label" : " takes no label"));
  for (const auto& [name, value] : spec.options) {
    const auto option = std::ranges::find(loss->options, name, &LossOption::name);
    const int64_t* number = std::get_if<int64_t>(&value);
    if (option == loss->options.end() || number == nullptr || *number < option->low || *number > option->high)
      return bad(
          text("the loss ", spec.kind, " has no such option, or not with this value: ", quoted(ModelText(name))));
  }
  return Ok{};
}

std::string print_loss(const ir::LossSpec& spec) {
  const LossDef* loss = find_loss(spec.kind);
  if (loss == nullptr) return {};
  std::string out = text(spec.kind, ":", word_of(spec.output.raw()));
  if (loss->takes_label) out += "," + word_of(spec.label.raw());
  for (const LossOption& option : loss->options)
    if (spec.options.has(option.name))
      out += text(",", option.name, option.has_value ? text("=", spec.options.get_int(option.name, 0)) : "");
  return out;
}

}  // namespace graphpipe::passes
