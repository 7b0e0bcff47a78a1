#include "frontend/import_onnx.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "frontend/bind_inputs.h"
#include "frontend/check_batch.h"
#include "frontend/drop_unused.h"
#include "frontend/flat_places.h"
#include "frontend/left_out_additions.h"
#include "frontend/lowering.h"
#include "frontend/merged_parameters.h"
#include "frontend/node_context.h"
#include "frontend/note_restored.h"
#include "frontend/one_sample.h"
#include "frontend/other_formats.h"
#include "frontend/padding_rows.h"
#include "frontend/parameters.h"
#include "frontend/prepare_model.h"
#include "frontend/restore_detach.h"
#include "frontend/restore_dropout.h"
#include "frontend/restore_parameters.h"
#include "frontend/straight_through.h"
#include "frontend/traced_divisor.h"
#include "frontend/transposed_copies.h"
#include "frontend/unlike_torch.h"
#include "frontend/untraced_parameters.h"
#include "frontend/wire_scan.h"
#include "frontend/without_gradient.h"
#include "ops/infer_helpers.h"
#include "support/mapped_file.h"

namespace graphpipe::frontend {
namespace {

void append(Diagnostics& to, const Diagnostics& from) { to.insert(to.end(), from.begin(), from.end()); }

/// Adds problems of tensors. A problem that many share, such as a missing data file, is reported once.
void append_merged(Diagnostics& to, const Diagnostics& from) {
  struct Merged {
    size_t place = 0, further = 0;
  };
  std::map<std::string, Merged> by_message;
  for (const Diagnostic& problem : from) {
    const auto [merged, is_new] = by_message.emplace(problem.message, Merged{to.size()});
    if (is_new) to.push_back(problem);
    else ++merged->second.further;
  }
  for (const auto& [message, merged] : by_message)
    if (merged.further > 0) to[merged.place].message += text(", as for ", merged.further, " more of its tensors");
}

void bind_initializers(const GraphBody& graph, Lowering& lowering) {
  Diagnostics problems;
  for (const Tensor& tensor : graph.initializers) {
    Result<Binding> binding = lowering.tensor_binding(tensor, ModelText(tensor.name));
    if (binding.ok()) {
      lowering.bind(tensor.name, std::move(*binding));
    } else {
      append(problems, binding.problems());
      Binding poisoned;
      poisoned.poisoned = true;
      lowering.bind(tensor.name, std::move(poisoned));
    }
  }
  append_merged(lowering.problems(), problems);
}

void collect_outputs(const GraphBody& graph, Lowering& lowering) {
  for (const ValueInfo& info : graph.outputs) {
    Binding* binding = lowering.find(info.name);
    OnnxNode reader;  // problems of an output name the output
    reader.name = info.name;
    reader.op = "output";
    if (binding == nullptr || binding->poisoned) {
      GP_CHECK(!lowering.problems().empty());
      continue;
    }
    // A sequence gives one output per tensor.
    for (size_t i = 0; i < binding->sequence.size(); ++i)
      lowering.graph().outputs().push_back({.value = binding->sequence[i], .name = ModelText(text(info.name, ".", i))});
    if (!binding->sequence.empty()) continue;
    const Result<ir::ValueId> value = lowering.value_of(*binding, reader);
    if (value.ok()) lowering.graph().outputs().push_back({.value = *value, .name = ModelText(info.name)});
    else append(lowering.problems(), value.problems());
  }
}

/// ONNX's inference is a cross-check of ours: if both know a dimension they must agree.
bool agrees(const ValueInfo& theirs, const ir::Shape& ours, int64_t traced) {
  if (!theirs.has_shape) return true;
  if (theirs.dims.size() != ours.size()) return false;
  for (size_t i = 0; i < ours.size(); ++i) {
    const std::optional<int64_t> size = theirs.dims[i].size;
    if (!size) continue;
    if (ours[i].is_fixed() ? ours[i].factor != *size : (traced == 0 || ir::size_at(ours[i], Samples(traced)) != *size))
      return false;
  }
  return true;
}

void compare_shapes(const GraphBody& graph, Lowering& lowering) {
  std::vector<const ValueInfo*> all;
  for (const ValueInfo& info : graph.value_info) all.push_back(&info);
  for (const ValueInfo& info : graph.outputs) all.push_back(&info);
  int reported = 0;
  for (const ValueInfo* info : all) {
    const Binding* binding = lowering.find(info->name);
    if (binding == nullptr || binding->poisoned || !info->is_tensor || !has_shape(*binding)) continue;
    if (agrees(*info, binding->type.shape, lowering.traced_batch()) || ++reported > 5) continue;
    lowering.notes().push_back({.code = Code::kUnresolvedShape,
                                .severity = Severity::kWarning,
                                .origin = ModelText(info->name),
                                .message = text("has the shape ", declared_text(*info), " by the file or ONNX, ",
                                                ops::shape_text(binding->type.shape), " by our inference"),
                                .hint = "run `graphpipe verify`: its check at two batch sizes settles it"});
  }
}

/// What the graph has for a value of the file, or null.
std::function<const ir::Shape*(const std::string&)> shapes_of(Lowering& lowering) {
  return [&lowering](const std::string& name) {
    const Binding* const binding = lowering.find(name);
    return binding != nullptr && !binding->poisoned && has_shape(*binding) ? &binding->type.shape : nullptr;
  };
}

/// Whether a value of the file is of floating type.
std::function<bool(const std::string&)> floating_values(Lowering& lowering) {
  return [&lowering](const std::string& name) {
    const Binding* const binding = lowering.find(name);
    return binding != nullptr && ir::is_floating(binding->type.dtype);
  };
}

/// What is known of a value of the file, or null.
std::function<const Known*(const std::string&)> known_values(Lowering& lowering) {
  return [&lowering](const std::string& name) {
    const Binding* const binding = lowering.find(name);
    return binding != nullptr && binding->known ? &*binding->known : nullptr;
  };
}

/// By all their names.
std::set<std::string> weights_of(const ir::Graph& graph) {
  std::set<std::string> names;
  for (const ir::ParamId id : graph.param_ids()) {
    if (graph.param(id).kind != ir::ParamKind::kWeight) continue;
    names.insert(graph.param(id).name.raw());
    for (const ModelText& alias : graph.param(id).aliases) names.insert(alias.raw());
  }
  return names;
}

/// Float tensors of the file that no output needs: parameters that the module never uses, or a missing output.
void report_unused(const GraphBody& body, const ir::Graph& graph, Diagnostics& notes) {
  std::set<std::string_view> kept;
  for (ir::ParamId id : graph.param_ids()) {
    kept.insert(graph.param(id).name.raw());
    for (const ModelText& alias : graph.param(id).aliases) kept.insert(alias.raw());
  }
  size_t unused = 0;
  ModelText first;
  for (const Tensor& tensor : body.initializers) {
    const std::optional<ir::DType> dtype = dtype_of_onnx(tensor.onnx_type);
    if (!dtype || !ir::is_floating(*dtype) || tensor.dims.empty() || kept.count(tensor.name) > 0) continue;
    if (++unused == 1) first = ModelText(tensor.name);
  }
  if (unused > 0)
    notes.push_back({.code = Code::kLostByExport,
                     .severity = Severity::kNote,
                     .origin = first,
                     .message = unused == 1
                                    ? "this tensor of the file is needed by no output and is left out"
                                    : text(unused,
                                           " tensors of the file, this one first, are needed by no output and are "
                                           "left out"),
                     .hint = "nothing, unless the model should use them"});
}

Diagnostics errors_of(const Diagnostics& notes) {
  Diagnostics errors;
  for (const Diagnostic& note : notes)
    if (note.severity == Severity::kError) errors.push_back(note);
  return errors;
}

/// The batch of the export if it is informative: 1 broadcasts against every size.
Samples checked_batch(const BatchChoice& batch) {
  constexpr int64_t kMaxTraced = 4096;
  return Samples(batch.traced > 1 && batch.traced <= kMaxTraced ? batch.traced : 3);
}

/// Shapes that do not fit may be caused by the sizes that the user gives, rather than by the model.
Diagnostics naming_bindings(Diagnostics problems, const std::vector<ir::SymbolBinding>& bindings) {
  std::string given;
  for (const ir::SymbolBinding& binding : bindings)
    if (binding.size > 0) given += text(given.empty() ? "" : " ", "--bind ", binding.symbol.raw(), "=", binding.size);
  const std::set<Code> of_shapes = {Code::kBadModel, Code::kUnresolvedShape, Code::kBatchNotFound};
  for (Diagnostic& problem : problems)
    if (!given.empty() && problem.severity == Severity::kError && of_shapes.contains(problem.code))
      problem.hint += text("; ", quoted(ModelText(given)), " may be a size that the model does not allow");
  return problems;
}

/// Whether the outputs have a batch axis, in a model that is one sample get one, and hold for any number of samples.
Status check_samples(const Prepared& prepared, const ImportRequest& request, const BatchChoice& batch,
                     Lowering& lowering) {
  if (request.spec.one_sample) return give_outputs_samples(lowering.graph());
  GP_TRY_VOID(check_output_axes(prepared.declared_outputs, lowering.graph(), batch.symbol, lowering.suspects(0)));
  return check_two_batches(lowering.graph(), checked_batch(batch));
}

/// The batch that was bound, and a note where the file has a fixed one.
void note_batch(const BatchChoice& batch, Imported& imported) {
  imported.batch_symbol = ModelText(batch.symbol);
  imported.traced_batch = batch.traced;
  if (batch.traced > 0)
    imported.notes.push_back({.code = Code::kBatchNotFound,
                              .severity = Severity::kNote,
                              .message = text("the file fixes the batch at ", batch.traced, "; it is re-bound"),
                              .hint = kExportRecipe});
}

Result<Imported> lower_model(Prepared prepared, const ImportRequest& request, const WireScan& scan) {
  GraphBody& body = prepared.model.graph;
  const std::string& path = request.spec.path.raw();
  GP_TRY(const ParameterRules rules, ParameterRules::parse(request.spec.freeze, request.spec.parameter_rules.raw()));
  TensorSource tensors(path, scan.slots, request.spec.trusted_root.raw(), request.limits.weight_bytes);
  const BatchChoice batch = choose_batch(body, request);
  const bool from_torch = prepared.model.producer == "pytorch";
  const ExportSignature signature = read_signature(body.metadata);
  Lowering lowering(request, rules, tensors, batch.traced, from_torch,
                    [&](const std::string& name) { return scalar_trains(name, rules, signature, from_torch); });
  lowering.notes() = prepared.notes;
  const WeightFiles files{path, request.spec.trusted_root.raw()};
  const TensorReaders readers{
      [&](const Tensor& matrix, const Tensor& copy) { return may_be_transposes(matrix, copy, tensors, files); },
      [&](const Tensor& tensor) { return tensors.elements_of(tensor); }};
  const Restoration restored = restore_parameters(body, signature, rules, readers);
  note_restored(restored, lowering.notes());
  restore_detach(body, signature, refuses_losses(request.spec), lowering.notes());
  if (!request.spec.says_what_trains)
    report_without_gradient(body, signature, rules, refuses_losses(request.spec), lowering.notes());
  restore_dropout(body, lowering.notes());
  report_left_out_additions(body, lowering.notes());
  report_unlike_torch(body, refuses_losses(request.spec), lowering.notes());

  if (Status inputs = bind_inputs(body, request, batch, lowering); !inputs.ok())
    append(lowering.problems(), inputs.problems());
  bind_initializers(body, lowering);
  if (Status overlaps = tensors.external().check_overlaps(); !overlaps.ok())
    append(lowering.problems(), overlaps.problems());
  lowering.note_reads(body);
  lowering.run(body.nodes);
  collect_outputs(body, lowering);
  if (!lowering.problems().empty()) return naming_bindings(std::move(lowering.problems()), request.spec.bindings);
  if (!batch.symbol.empty()) {
    GP_TRY_VOID(check_traced_sample(body, shapes_of(lowering)));
  }
  compare_shapes(body, lowering);
  report_straight_through(body, floating_values(lowering), refuses_losses(request.spec), lowering.notes());
  report_flat_places(body, known_values(lowering), refuses_losses(request.spec), lowering.notes());
  report_traced_divisor(body, {shapes_of(lowering), known_values(lowering)}, batch.traced, lowering.notes());
  GP_TRY_VOID(check_samples(prepared, request, batch, lowering));

  Imported imported;
  imported.notes = std::move(lowering.notes());
  append(imported.notes, tensors.external().notes());
  Trimmed trimmed = drop_unused(lowering.graph(), lowering.param_origins());
  imported.graph = std::move(trimmed.graph);
  report_unused(body, imported.graph, imported.notes);
  imported.parameters = decide_parameters(
      imported.graph,
      {.rules = rules,
       .signature = signature,
       .origins = trimmed.origins,
       .merged = merged_parameters(body, signature),
       .copies = merged_copies(body),
       .untraced = untraced_parameters(body, signature, rules, readers.elements_of, !restored.names.empty()),
       .look_ups = folded_look_ups(body, signature),
       .from_torch = from_torch,
       .refuses_losses = refuses_losses(request.spec),
       .says_what_trains = request.spec.says_what_trains,
       .model_path = path,
       .trusted_root = request.spec.trusted_root.raw()},
      imported.notes);
  if (Diagnostics losses = errors_of(imported.notes); !losses.empty()) return losses;
  GP_TRY_VOID(apply_padding_rows(rules, imported.graph));
  if (Diagnostics unused = rules.unused(); !unused.empty()) return unused;
  if (Diagnostics used = rules.contradicted_by(weights_of(imported.graph)); !used.empty()) return used;
  imported.outside_constants = tensors.outside_constants();
  imported.files = {path};
  std::copy(tensors.external().files().begin(), tensors.external().files().end(), std::back_inserter(imported.files));
  note_batch(batch, imported);
  return imported;
}

}  // namespace

bool refuses_losses(const ir::ModelSpec& spec) { return !spec.loss.kind.empty() && !spec.accepts_losses; }

Result<Imported> import_onnx(const ImportRequest& request) {
  GP_TRY(const MappedFile file, MappedFile::open(request.spec.path.raw(), request.limits.file_bytes));
  return import_onnx(request, file.text());
}

namespace {

/// Problems with the file as a whole, labelled with its name.
Diagnostics of_file(const ImportRequest& request, std::string_view file, Diagnostics problems) {
  for (Diagnostic& problem : problems) {
    if (problem.origin.empty()) problem.origin = request.spec.path;
    if (const std::string_view hint = hint_of_format(file); !hint.empty()) problem.hint = hint;
  }
  return problems;
}

}  // namespace

Result<Imported> import_onnx(const ImportRequest& request, std::string_view file) {
  Result<WireScan> scanned = scan_wire(file, request.limits);
  if (!scanned) return of_file(request, file, scanned.problems());
  WireScan scan = *std::move(scanned);
  GP_TRY(Prepared prepared, prepare_model(scan.stripped, scan.slots.size(), request.limits, request.isolation));
  scan.stripped = {};
  return lower_model(std::move(prepared), request, scan);
}

}  // namespace graphpipe::frontend
