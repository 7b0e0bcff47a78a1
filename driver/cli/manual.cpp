#include "driver/cli/manual.h"

#include <CLI/CLI.hpp>
#include <csignal>

#include "partitioner/planner.h"
#include "scheduler/policies/policies.h"
#include "support/text.h"
#include "wire/exit_codes.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

constexpr ExitMeaning kExitMeanings[] = {
    {wire::kExitOk, "ok"},
    {wire::kExitCheckFailed, "a check failed"},
    {wire::kExitUsage, "usage"},
    {wire::kExitInputRefused, "input refused"},
    {wire::kExitNoPlan, "no feasible plan"},
    {wire::kExitEnvironment, "environment"},
    {wire::kExitPeerFailed, "a stage failed"},
    {wire::kExitPartial, "ended early with a partial result"},
    {wire::kExitInternal, "internal defect"},
    {128 + SIGHUP, "stopped by SIGHUP"},
    {128 + SIGINT, "stopped by SIGINT, Ctrl-C"},
    {128 + SIGTERM, "stopped by SIGTERM"},
};

/// Escapes text for roff: nothing in it is a request or an escape, dashes are those that a user types, and a line may
/// break after a bar.
std::string roff(std::string_view words) {
  std::string out = words.starts_with(".") || words.starts_with("'") ? "\\&" : "";
  for (const char c : words) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (c == '|') out += "|\\:";
    else out += c;
  }
  return out;
}

std::string flag_names(const ShownFlag& flag) {
  std::string out;
  for (const std::string& name : flag.short_names) out += (out.empty() ? "-" : ", -") + name;
  for (const std::string& name : flag.long_names) out += (out.empty() ? "--" : ", --") + name;
  return out;
}

std::string man_title(std::string_view name) {
  std::string capitals;
  for (const char c : name) capitals += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text(".TH \"", roff(capitals), "\" 1 \"\" \"graphpipe ", wire::kToolVersion, "\" \"GraphPipe\"\n");
}

std::string man_exit_codes() {
  std::string out = ".SH EXIT STATUS\n";
  for (const ExitMeaning& exit : kExitMeanings) out += text(".TP\n.B ", exit.code, "\n", roff(exit.meaning), "\n");
  return out;
}

std::string man_flag(const ShownFlag& flag) {
  std::string out = ".TP\n";
  if (!flag.argument.empty()) out += ".I " + roff(flag.argument) + "\n";
  else if (flag.value.empty()) out += ".B " + roff(flag_names(flag)) + "\n";
  else out += ".BI \"" + roff(flag_names(flag)) + " \" \"" + roff(flag.value) + "\"\n";
  return out + roff(flag.help) + "\n";
}

/// "graphpipe plan [model] [flags]".
std::string verb_usage(const CommandEntry& verb, const std::vector<ShownFlag>& flags) {
  std::string out = "graphpipe " + std::string(verb.name);
  for (const ShownFlag& flag : flags)
    if (!flag.argument.empty()) out += flag.required ? " " + flag.argument : " [" + flag.argument + "]";
  return out + " [flags]";
}

/// Escapes a table cell: bars would end it, and angle brackets, stars, underscores and backticks would be markup.
std::string markdown_cell(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '<') out += "&lt;";
    else if (c == '|' || c == '*' || c == '_' || c == '`') out += std::string("\\") + c;
    else out += c;
  }
  return out;
}

/// Code in a table cell, where only bars need an escape: they would end the cell.
std::string markdown_code(std::string_view words) {
  std::string out = "`";
  for (const char c : words) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out + "`";
}

std::string markdown_verb(const CommandEntry& verb) {
  const std::vector<ShownFlag> flags = flags_of(verb);
  const std::string name(verb.name), summary(verb.summary), example(verb.example);
  std::string out = "\n## " + name + "\n\n" + summary + ".\n\n```\n" + verb_usage(verb, flags) + "\n```\n\n";
  out += "| flag | what it is |\n|---|---|\n";
  for (const ShownFlag& flag : flags) {
    const std::string shown = flag.argument.empty() ? flag_names(flag) : flag.argument;
    out += text("| ", markdown_code(flag.value.empty() || !flag.argument.empty() ? shown : shown + " " + flag.value),
                " | ", markdown_cell(flag.help), " |\n");
  }
  return out + "\nExample: `" + example + "`\n";
}

template <typename Entries>
std::string markdown_names(std::string_view title, std::string_view intro, const Entries& entries) {
  std::string out = text("\n## ", title, "\n\n", intro, "\n\n| name | what it is |\n|---|---|\n");
  for (const auto& entry : entries)
    out += text("| ", markdown_code(entry.name), " | ", markdown_cell(entry.description), " |\n");
  return out;
}

}  // namespace

std::span<const ExitMeaning> exit_meanings() { return kExitMeanings; }

std::vector<ShownFlag> flags_of(const CommandEntry& verb) {
  Options options;
  CLI::App app;
  add_flags_with_help(app, verb, options);
  return shown_flags(app);
}

std::string overview_man_page() {
  std::string out = man_title("graphpipe");
  out += ".SH NAME\ngraphpipe \\- compiler for pipeline\\-parallel training\n";
  out += ".SH SYNOPSIS\n.B graphpipe\n.I verb\n[\n.I flags\n]\n.SH DESCRIPTION\n" + roff(kWhatItIs) + "\n.SH VERBS\n";
  std::string see_also;
  for (const CommandEntry& verb : all_commands()) {
    out += ".TP\n.B " + roff(verb.name) + "\n" + roff(verb.summary) + "\n";
    see_also += (see_also.empty() ? "" : ",\n") + text(".BR graphpipe\\-", roff(verb.name), " (1)");
  }
  return out + man_exit_codes() + ".SH SEE ALSO\n" + see_also + "\n";
}

std::string verb_man_page(const CommandEntry& verb) {
  const std::string name = "graphpipe-" + std::string(verb.name);
  const std::vector<ShownFlag> flags = flags_of(verb);
  std::string out = man_title(name) + ".SH NAME\n" + roff(name) + " \\- " + roff(verb.summary) + "\n";
  out += ".SH SYNOPSIS\n" + roff(verb_usage(verb, flags)) + "\n.SH OPTIONS\n.ad l\n";
  for (const ShownFlag& flag : flags) out += man_flag(flag);
  out += ".SH EXAMPLES\n.EX\n" + roff(verb.example) + "\n.EE\n";
  return out + man_exit_codes() + ".SH SEE ALSO\n.BR graphpipe (1)\n";
}

std::string markdown_reference() {
  std::string out =
      "# Reference\n\nAll verbs with their flags, as `graphpipe manual --format markdown` prints them.\n\n"
      "| exit code | what it means |\n|---|---|\n";
  for (const ExitMeaning& exit : kExitMeanings) out += text("| ", exit.code, " | ", exit.meaning, " |\n");
  for (const CommandEntry& verb : all_commands()) out += markdown_verb(verb);
  out += markdown_names("Planners", "What `--planner` names; `docs/planners.md` tells more.", partitioner::planners());
  out += markdown_names("Policies", "What `--policy` names, `kfkb` without it; `docs/schedules.md` has their rules.",
                        scheduler::all_policies());
  return out;
}

}  // namespace graphpipe::driver
