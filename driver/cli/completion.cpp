#include "driver/cli/completion.h"

#include <vector>

#include "driver/cli/manual.h"
#include "support/text.h"

namespace graphpipe::driver {
namespace {

struct CompletedVerb {
  std::string name, summary;
  std::vector<ShownFlag> flags;
};

std::vector<CompletedVerb> completed_verbs() {
  std::vector<CompletedVerb> verbs;
  for (const CommandEntry& entry : all_commands())
    verbs.push_back({std::string(entry.name), std::string(entry.summary), flags_of(entry)});
  return verbs;
}

std::string words_between(const std::vector<std::string>& words, std::string_view mark) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : std::string(mark)) + word;
  return out;
}

std::string replaced(std::string_view words, std::string_view marks, std::string_view before) {
  std::string out;
  for (const char c : words) {
    if (marks.find(c) != std::string_view::npos) out += before;
    out += c;
  }
  return out;
}

/// In single quotes, for bash and zsh.
std::string shell_quoted(std::string_view words) {
  std::string out = "'";
  for (const char c : words) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> spellings(const ShownFlag& flag) {
  std::vector<std::string> out;
  for (const std::string& name : flag.short_names) out.push_back("-" + name);
  for (const std::string& name : flag.long_names) out.push_back("--" + name);
  return out;
}

bool takes_numbers(const ShownFlag& flag) { return flag.value == "N" || flag.value == "X" || flag.value == "X,Y"; }

// The words after "graphpipe VERB" as bash sees them: `=` is a word of its own.
constexpr std::string_view kBashStart = R"(# bash completion for graphpipe; made by `graphpipe completion bash`
_graphpipe() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} words= flags=
  COMPREPLY=()
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
)";
constexpr std::string_view kBashEnd = R"(  if [[ $current == -* ]]; then words=$flags; fi
  if [[ -n $words ]]; then
    compopt +o default 2>/dev/null
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}
complete -o default -F _graphpipe graphpipe
)";

std::string bash_script() {
  std::string cases, flags, arguments, names;
  std::vector<std::string> no_words;
  for (const CompletedVerb& verb : completed_verbs()) {
    names += (names.empty() ? "" : " ") + verb.name;
    std::vector<std::string> all;
    for (const ShownFlag& flag : verb.flags) {
      for (const std::string& spelling : spellings(flag)) {
        all.push_back(spelling);
        const std::string pattern = shell_quoted(verb.name + " " + spelling);
        if (!flag.choices.empty())
          cases += text("    ", pattern, ") words=", shell_quoted(words_between(flag.choices, " ")), " ;;\n");
        else if (takes_numbers(flag)) no_words.push_back(pattern);
      }
      if (!flag.argument.empty() && !flag.choices.empty())
        arguments += text("    ", verb.name, ") words=", shell_quoted(words_between(flag.choices, " ")), " ;;\n");
    }
    flags += text("    ", verb.name, ") flags=", shell_quoted(words_between(all, " ")), " ;;\n");
  }
  std::string out(kBashStart);
  out += text("  if [[ $COMP_CWORD -eq 1 ]]; then\n    COMPREPLY=($(compgen -W ",
              shell_quoted(names + " --help --version"), " -- \"$current\"))\n    return\n  fi\n");
  out += "  case $verb in\n" + flags + "  esac\n  case $verb in\n" + arguments + "  esac\n";
  out += "  case \"$verb $before\" in\n" + cases + "    " + words_between(no_words, "|") +
         ") compopt +o default 2>/dev/null; return ;;\n  esac\n";
  return out + std::string(kBashEnd);
}

// Escapes brackets and colons, which _arguments would interpret.
std::string zsh_help(std::string_view words) { return replaced(words, "\\[]:", "\\"); }

std::string zsh_action(const ShownFlag& flag) {
  if (!flag.choices.empty()) return "(" + words_between(flag.choices, " ") + ")";
  return takes_numbers(flag) ? " " : "_files";
}

std::string zsh_flag(const ShownFlag& flag, const std::string& spelling) {
  const bool is_long = spelling.starts_with("--");
  std::string spec = "*" + spelling;
  if (!flag.value.empty()) spec += is_long ? "=" : "";
  spec += "[" + zsh_help(flag.help) + "]";
  if (!flag.value.empty()) spec += ":" + zsh_help(flag.value) + ":" + zsh_action(flag);
  return shell_quoted(spec);
}

std::string zsh_script() {
  std::string verbs, cases;
  for (const CompletedVerb& verb : completed_verbs()) {
    verbs += "    " + shell_quoted(replaced(verb.name, ":", "\\") + ":" + replaced(verb.summary, ":", "\\")) + "\n";
    cases += "    " + verb.name + ") _arguments -s";
    std::string argument = ":file:_files";
    for (const ShownFlag& flag : verb.flags) {
      for (const std::string& spelling : spellings(flag)) cases += " \\\n      " + zsh_flag(flag, spelling);
      if (!flag.argument.empty()) argument = ":" + zsh_help(flag.argument) + ":" + zsh_action(flag);
    }
    cases += " \\\n      " + shell_quoted("*" + argument) + " ;;\n";
  }
  return "#compdef graphpipe\n# zsh completion for graphpipe; made by `graphpipe completion zsh`\n_graphpipe() {\n"
         "  local -a verbs=(\n" +
         verbs +
         "  )\n  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n"
         "  local verb=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $verb in\n" +
         cases +
         "  esac\n}\nif [[ $funcstack[1] == _graphpipe ]]; then\n  _graphpipe \"$@\"\nelse\n"
         "  compdef _graphpipe graphpipe\nfi\n";
}

std::string fish_quoted(std::string_view words) { return "'" + replaced(words, "\\'", "\\") + "'"; }

std::string fish_flag(const std::string& condition, const ShownFlag& flag) {
  std::string out = "complete -c graphpipe -n " + condition;
  for (const std::string& name : flag.short_names) out += " -s " + name;
  for (const std::string& name : flag.long_names) out += " -l " + name;
  if (!flag.choices.empty()) out += " -x -a " + fish_quoted(words_between(flag.choices, " "));
  else if (takes_numbers(flag)) out += " -x";
  else if (!flag.value.empty()) out += " -r -F";
  return out + " -d " + fish_quoted(flag.help) + "\n";
}

std::string fish_script() {
  std::string out = "# fish completion for graphpipe; made by `graphpipe completion fish`\n";
  for (const CompletedVerb& verb : completed_verbs()) {
    out += text("complete -c graphpipe -n __fish_use_subcommand -f -a ", verb.name, " -d ", fish_quoted(verb.summary),
                "\n");
    const std::string condition = fish_quoted("__fish_seen_subcommand_from " + verb.name);
    for (const ShownFlag& flag : verb.flags) {
      if (flag.argument.empty()) out += fish_flag(condition, flag);
      else if (!flag.choices.empty())
        out += text("complete -c graphpipe -n ", condition, " -f -a ", fish_quoted(words_between(flag.choices, " ")),
                    "\n");
    }
  }
  return out;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "zsh") return zsh_script();
  return shell == "fish" ? fish_script() : bash_script();
}

}  // namespace graphpipe::driver
