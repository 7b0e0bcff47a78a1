#include "files/module_facts.h"

#include <filesystem>

#include "files/proto_json.h"
#include "files/schema/module.pb.h"
#include "files/text_file.h"

namespace graphpipe::files {
namespace {

constexpr JsonLimits kFactsLimits = {.max_bytes = int64_t{64} << 20, .deepest = 8};
constexpr std::string_view kFactsHint = "export the model again, or remove the file";

// It becomes a pattern of a parameter file, where these have a meaning.
ModelText parameter_name(const std::string& encoded, const std::string& path, FieldProblems& problems) {
  ModelText name = decode_name(encoded);
  if (name.empty() || name.raw().find_first_of(" \t\r\n\v\f*?#") != std::string::npos)
    problems.add(path, "is no name of a module's parameter: ", quoted(name));
  return name;
}

}  // namespace

Result<ModuleFacts> parse_module_facts(std::string_view content) {
  schema::ModuleFactsFile message;
  GP_TRY_VOID(parse_message(content, "graphpipe.module", 1, kFactsLimits, message));
  FieldProblems problems(Code::kMalformedFile, kFactsHint);
  ModuleFacts facts{.model_digest = message.model(),
                    .frozen = {},
                    .padding_rows = {},
                    .ties = {},
                    .unused = {},
                    .module_of_node = {}};
  problems.need_digest("model", facts.model_digest);
  if (facts.model_digest.empty()) problems.add("model", "must be the digest of the model file");
  for (int i = 0; i < message.frozen_size(); ++i)
    facts.frozen.push_back(parameter_name(message.frozen(i), text("frozen[", i, "]"), problems));
  for (int i = 0; i < message.padding_rows_size(); ++i) {
    const schema::PaddingRow& entry = message.padding_rows(i);
    const std::string path = text("padding_rows[", i, "]");
    facts.padding_rows.push_back({parameter_name(entry.parameter(), path + ".parameter", problems), entry.row()});
    problems.need_range<int64_t>(path + ".row", entry.row(), 0, kMaxOfMessage);
  }
  for (int i = 0; i < message.ties_size(); ++i) {
    std::vector<ModelText>& names = facts.ties.emplace_back();
    for (const std::string& name : message.ties(i).names())
      names.push_back(parameter_name(name, text("ties[", i, "].names"), problems));
  }
  for (int i = 0; i < message.unused_size(); ++i)
    facts.unused.push_back(parameter_name(message.unused(i), text("unused[", i, "]"), problems));
  for (const schema::NodeModule& entry : message.modules())
    facts.module_of_node[decode_name(entry.node()).raw()] = decode_name(entry.path());
  if (!problems.empty()) return problems.take();
  return facts;
}

Result<std::optional<ModuleFacts>> module_facts_beside(const std::string& model) {
  const std::string path = model + ".module.json";
  std::error_code error;
  if (model.empty() || !std::filesystem::exists(path, error)) return std::optional<ModuleFacts>();
  GP_TRY(const std::string content, read_file(path, kFactsLimits.max_bytes));
  Result<ModuleFacts> facts = parse_module_facts(content);
  if (!facts.ok()) return with_origin(facts.problems(), path);
  return std::optional<ModuleFacts>(std::move(*facts));
}

std::string parameter_lines(const ModuleFacts& facts) {
  std::string lines;
  for (const ModelText& name : facts.frozen) lines += name.raw() + " freeze\n";
  for (const PaddingRow& entry : facts.padding_rows) lines += text(entry.parameter.raw(), " padding ", entry.row, "\n");
  for (const std::vector<ModelText>& names : facts.ties)
    for (const ModelText& name : names)
      lines += name.raw() + (name == names.front() ? " tie\n" : " tie " + names.front().raw() + "\n");
  for (const ModelText& name : facts.unused) lines += name.raw() + " unused\n";
  return lines;
}

}  // namespace graphpipe::files
