// graphpipe export: writes trained weights back into the ONNX model, or into a file for PyTorch.

#include <iostream>
#include <map>
#include <set>
#include <span>

#include "driver/cli/commands.h"
#include "driver/cli/output_path.h"
#include "driver/cli/usage.h"
#include "driver/pipeline/pipeline.h"
#include "driver/report/json_object.h"
#include "driver/report/report.h"
#include "files/safetensors.h"
#include "frontend/export_onnx.h"
#include "support/mapped_file.h"
#include "support/output_file.h"
#include "wire/scan_numbers.h"
#include "wire/tied_weights.h"

namespace graphpipe::driver {
namespace {

using Tensors = std::map<std::string, frontend::NewTensor>;
using Entries = std::map<std::string, const files::TensorEntry*>;

std::vector<int64_t> dims_of(const ir::TensorType& type) {
  std::vector<int64_t> dims;
  for (const ir::Dim dim : type.shape) dims.push_back(dim.at(Samples(1)));
  return dims;
}

std::span<const std::byte> bytes_of(const MappedFile& file, const files::TensorEntry& entry) {
  return file.bytes().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.length));
}

// Under any of its names; null: the file does not have it.
Result<const files::TensorEntry*> find_by_any_name(const ir::Param& param, const Entries& saved,
                                                   const MappedFile& file) {
  std::vector<std::string> names{param.name.raw()};
  for (const ModelText& alias : param.aliases) names.push_back(alias.raw());
  auto found = wire::find_tied_weight(names, [&](std::string_view name) {
    const auto entry = saved.find(std::string(name));
    return entry == saved.end() ? std::nullopt : std::optional(bytes_of(file, *entry->second));
  });
  if (!found) {
    Diagnostics problems = found.problems();
    for (Diagnostic& problem : problems) problem.origin = ModelText(file.path());
    return problems;
  }
  return *found ? saved.at(**found) : nullptr;
}

// The file's values for the model's parameters, under all of their names. Reports up to kMaxProblems problems at once.
Result<Tensors> new_values(const ir::Graph& graph, const MappedFile& file) {
  const auto parsed = wire::parse_safetensors(file.text(), static_cast<int64_t>(file.bytes().size()));
  if (!parsed) {
    Diagnostics problems = parsed.problems();
    for (Diagnostic& problem : problems) problem.origin = ModelText(file.path());
    return problems;
  }
  const files::SafetensorsIndex& index = *parsed;
  Entries saved;
  for (const files::TensorEntry& entry : index.tensors) saved[entry.name.raw()] = &entry;
  Tensors tensors;
  Diagnostics problems;
  for (const ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    if (param.kind == ir::ParamKind::kConstant) continue;
    const ir::TensorType& type = graph.value(param.value).type;
    GP_TRY(const files::TensorEntry* found, find_by_any_name(param, saved, file));
    if (found == nullptr || found->dtype != type.dtype || found->shape != dims_of(type)) {
      if (problems.size() < kMaxProblems)
        problems.push_back({.code = Code::kBadParameter,
                            .origin = param.name,
                            .message = text("the weights ", quoted(ModelText(file.path())),
                                            " hold no such parameter of the model's type and shape"),
                            .hint = "pass a file that `run --save` of this model wrote"});
      continue;
    }
    const std::span<const std::byte> bytes = bytes_of(file, *found);
    const frontend::NewTensor value{.dtype = found->dtype,
                                    .dims = found->shape,
                                    .bytes = {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    if (const auto bad = wire::find_not_finite(found->dtype, found->shape, bytes);
        bad && problems.size() < kMaxProblems)
      problems.push_back({.code = Code::kBadParameter,
                          .origin = param.name,
                          .message = text("the weights ", quoted(ModelText(file.path())), " are not finite: ", *bad),
                          .hint = "export weights of an earlier step"});
    tensors.emplace(param.name.raw(), value);
    for (const ModelText& alias : param.aliases) tensors.emplace(alias.raw(), value);
  }
  if (!problems.empty()) return problems;
  return tensors;
}

// Every parameter must have reached the file under one of its names.
Status check_all_replaced(const ir::Graph& graph, const std::set<std::string>& replaced) {
  for (const ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    if (param.kind == ir::ParamKind::kConstant) continue;
    bool found = replaced.contains(param.name.raw());
    for (const ModelText& alias : param.aliases) found = found || replaced.contains(alias.raw());
    if (found) continue;
    return Diagnostic{.code = Code::kUnsupportedType,
                      .origin = param.name,
                      .message = "the model file holds this parameter in a form that cannot be replaced",
                      .hint = "take weights alone: -o FILE.safetensors"};
  }
  return Ok{};
}

Status write_model(const Pipeline& pipeline, const Tensors& tensors, const std::string& path) {
  std::set<std::string> replaced;
  const ir::ModelSpec& spec = pipeline.plan.spec;
  GP_TRY(const auto rules, frontend::ParameterRules::parse(spec.freeze, spec.parameter_rules.raw()));
  GP_TRY(const std::string model, frontend::export_onnx(pipeline.model.imported.files.front(), spec.trusted_root.raw(),
                                                        rules, tensors, replaced));
  GP_TRY_VOID(check_all_replaced(pipeline.model.graph, replaced));
  GP_TRY(OutputFile file, OutputFile::create(path));
  GP_TRY_VOID(file.write(model));
  return file.commit();
}

// A state_dict has a shared weight under each of its names, so that load_state_dict(strict=True) finds them all.
Status write_state_dict(const Tensors& tensors, const std::string& path) {
  std::vector<files::TensorToWrite> headers;
  std::vector<std::string_view> bytes;
  for (const auto& [name, tensor] : tensors) {
    headers.push_back({.name = ModelText(name), .dtype = tensor.dtype, .shape = tensor.dims});
    bytes.push_back(tensor.bytes);
  }
  return files::write_safetensors(path, headers,
                                  [&](size_t index, const files::ByteSink& sink) { return sink(bytes[index]); });
}

Result<size_t> export_weights(const Options& options) {
  const bool as_onnx = options.output.ends_with(".onnx");
  if (!as_onnx && !options.output.ends_with(".safetensors"))
    return usage("-o " + options.output, "the ending says what is written", "name a file .onnx or .safetensors");
  GP_TRY_VOID(check_output(options));
  GP_TRY(const Pipeline pipeline, load_pipeline(options.input, options.model.trusted_root));
  // The model's files are still being read while the output is written.
  GP_TRY_VOID(check_output(options, files_read(pipeline)));
  GP_TRY(const MappedFile weights, MappedFile::open(options.run.data.weights));
  GP_TRY(const Tensors tensors, new_values(pipeline.model.graph, weights));
  GP_TRY_VOID(as_onnx ? write_model(pipeline, tensors, options.output) : write_state_dict(tensors, options.output));
  return tensors.size();
}

}  // namespace

int run_export(const Options& options) {
  const Result<size_t> tensors = export_weights(options);
  if (!tensors) return report_problems(options, "export", tensors.problems());
  if (options.json) print_json("export", JsonObject().add("file", options.output).add("tensors", *tensors), {});
  else
    std::cout << "wrote " << Terminal::encode_text(options.output).str() << " with " << *tensors
              << " trained tensors\n";
  return 0;
}

}  // namespace graphpipe::driver
