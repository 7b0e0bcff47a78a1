#include "frontend/lost_by_export.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "frontend/restore_parts.h"
#include "frontend/transposed_copies.h"
#include "frontend/untraced_parameters.h"

namespace graphpipe::frontend {
namespace {

constexpr size_t kExamples = 3;

std::string examples_of(const std::vector<ModelText>& names) {
  std::string words;
  for (size_t i = 0; i < std::min(names.size(), kExamples); ++i) words += (i == 0 ? "" : ", ") + quoted(names[i]);
  return names.size() > kExamples ? words + ", ..." : words;
}

/// " from 'conv.weight_g' and 1 more".
std::string from_parameters(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return text(" from ", quoted(ModelText(names.front())),
              names.size() == 1 ? std::string() : text(" and ", names.size() - 1, " more"));
}

/// Whether a message that tells of these as errors tells of all of the others.
bool names_all(const UntracedParameters& untraced, const std::vector<std::string>& others) {
  return !untraced.evidence.empty() && !others.empty() && std::ranges::all_of(others, [&](const std::string& name) {
    return std::ranges::find(untraced.names, name) != untraced.names.end();
  });
}

class Reporter {
 public:
  Reporter(const ir::Graph& graph, const ParameterContext& context, const DecidedTensors& tensors, Diagnostics& notes)
      : graph_(graph), context_(context), tensors_(tensors), notes_(notes) {}

  void report();

 private:
  void add(Severity severity, ModelText origin, std::string message, std::string hint) {
    notes_.push_back({.code = Code::kLostByExport,
                      .severity = severity,
                      .origin = std::move(origin),
                      .message = std::move(message),
                      .hint = std::move(hint)});
  }
  /// Of what trains in another way than the module.
  Severity severe() const { return context_.refuses_losses ? Severity::kError : Severity::kWarning; }
  size_t report_names();
  void report_missing(size_t lost);
  void report_untraced();
  void report_doubtful();
  void report_look_ups();
  void report_numbers_of_rows();
  void report_parts(const std::vector<ModelText>& parts);
  void report_folded_apart();
  void report_statistics() const;
  void report_folded(size_t unexplained);
  bool scales_and_shifts() const;
  bool lacks_pair() const;
  void report_merged();
  void report_parted();
  void report_uncertain();
  void report_waves();
  bool is_missing(const std::string& name) const {
    return !present_.contains(name) && !context_.rules.tied(name).value_or(false) && !context_.rules.leaves_out(name);
  }

  const ir::Graph& graph_;
  const ParameterContext& context_;
  const DecidedTensors& tensors_;
  Diagnostics& notes_;
  std::set<std::string_view> present_;
  bool has_folded_norms_ = false;
};

void Reporter::report() {
  for (ir::ParamId id : graph_.param_ids()) {
    present_.insert(graph_.param(id).name.raw());
    for (const ModelText& alias : graph_.param(id).aliases) present_.insert(alias.raw());
  }
  report_uncertain();
  if (!context_.signature.is_parameter.empty()) report_waves();
  const size_t lost = report_names();
  report_missing(lost);
  report_untraced();
  report_doubtful();
  report_look_ups();
  report_numbers_of_rows();
  report_folded_apart();
  report_merged();
  if (context_.from_torch && lost > 0) report_parted();
}

// Returns how many trained tensors have lost their names.
size_t Reporter::report_names() {
  size_t lost = 0, trained = 0;
  ModelText example;
  for (const ParameterDecision& decision : tensors_.decisions) {
    if (!decision.trainable) continue;
    ++trained;
    if (is_anonymous(decision.name.raw()) && ++lost == 1) example = decision.name;
  }
  if (context_.from_torch && lost > 0)
    add(Severity::kWarning, example,
        text(lost, " of ", trained,
             " trained tensors have lost their names: the export was optimised, so weights are transposed, merged or "
             "folded and other parameters train than the module's"),
        kExportRecipe);
  if (trained == 0)
    notes_.push_back({.code = Code::kUntrainable,
                      .severity = Severity::kWarning,
                      .message = "no parameter trains",
                      .hint = "thaw some in the parameter file, or export with optimize=False"});
  return lost;
}

/// What the exporter's signature lists and the file lacks. A tied parameter lacks all names but one, so missing
/// parameters alone are a note; missing running statistics mean that a BatchNormalization was folded away.
void Reporter::report_missing(size_t lost) {
  size_t missing = 0, named = 0, statistics = 0;
  ModelText first, first_statistic;
  for (const auto& [name, is_parameter] : context_.signature.is_parameter) {
    if (!is_missing(name)) continue;
    const bool statistic = name.ends_with("running_mean") || name.ends_with("running_var");
    const bool is_untraced = std::ranges::find(context_.untraced.names, name) != context_.untraced.names.end();
    missing += is_parameter ? 1 : 0;
    if (is_parameter && !is_untraced && ++named == 1) first = ModelText(name);
    if (!is_parameter && statistic && ++statistics == 1) first_statistic = ModelText(name);
  }
  if (named > 0)
    add(Severity::kNote, first,
        named == 1 ? "this parameter of the module has no tensor of its own: it is tied to another, unused, or merged "
                     "by the exporter"
                   : text(named,
                          " parameters of the module, this one first, have no tensor of their own: they are "
                          "tied to another, unused, or merged by the exporter"),
        text("if the module ties them, graphpipe.export says so, or a line 'NAME tie OTHER' of --parameters",
             lost > 0 ? "; else export with optimize=False" : ""));
  report_folded(missing > lost ? missing - lost : 0);
  has_folded_norms_ = statistics > 0;
  if (has_folded_norms_)
    add(severe(), first_statistic,
        text(statistics,
             " running statistics of the module, this one first, are not in the file: the exporter folded "
             "their BatchNormalization into weights"),
        text(kExportRecipe,
             "; --accept trains the file without them. Where the module does not use these layers, graphpipe.export "
             "says "
             "so, or a line 'PATTERN unused' of --parameters"));
}

/// They train as the rows of the module's tables do, but have no name there.
void Reporter::report_look_ups() {
  std::vector<ModelText> names, parts, repeated, with_zeros;
  for (const ir::ParamId id : graph_.param_ids()) {
    const ModelText& name = graph_.param(id).name;
    if (context_.look_ups.contains(name.raw())) (name.raw().ends_with(kPartSuffix) ? parts : names).push_back(name);
    if (context_.untraced.repeated.contains(name.raw())) repeated.push_back(name);
    if (context_.untraced.with_zeros.contains(name.raw())) with_zeros.push_back(name);
  }
  if (!repeated.empty())
    add(severe(), repeated.front(),
        "the exporter's optimiser has looked up rows of a table beforehand, one row in several places: they would "
        "train apart from one another",
        text(kExportRecipe, "; --accept trains the file as it is"));
  if (!with_zeros.empty())
    add(severe(), with_zeros.front(),
        "the exporter's optimiser has looked up a row of zeros beforehand, as padding_idx of nn.Embedding leaves one: "
        "it would train, which PyTorch does not do",
        text(kExportRecipe, "; where the table has no padding_idx, --accept trains the file as it is"));
  report_parts(parts);
  if (!names.empty())
    add(Severity::kWarning, {},
        text("rows of tables of the module that were looked up beforehand train, that of a padding_idx as well, which "
             "PyTorch does not train, under the names of values, which no state_dict of the module has: ",
             examples_of(names)),
        kExportRecipe);
}

/// F.embedding(numbers + 2, table) leaves the same in the file as F.embedding(numbers, table + 2), where the sum
/// decays.
void Reporter::report_numbers_of_rows() {
  for (const ir::ParamId id : graph_.param_ids()) {
    const ModelText& name = graph_.param(id).name;
    const auto found = context_.look_ups.find(name.raw());
    if (found == context_.look_ups.end() || found->second.empty()) continue;
    std::vector<ModelText> calls(found->second.begin(), found->second.end());
    add(Severity::kWarning, name,
        text("the exporter's optimiser has looked up rows of a table beforehand; what it has computed there (",
             examples_of(calls), ") is taken for the numbers of the rows, not for the table"),
        text("nothing if the module looks up in the table itself; if it computes the table, ", kExportRecipe));
  }
}

/// So do parts of parameters, of which the file has no more.
void Reporter::report_parts(const std::vector<ModelText>& parts) {
  if (!parts.empty())
    add(Severity::kWarning, {},
        text("parts of parameters of the module that were cut out beforehand train under the names of values, which no "
             "state_dict of the module has: ",
             examples_of(parts)),
        kExportRecipe);
}

/// One computed tensor stands for all: they come of the same call in every layer.
void Reporter::report_folded_apart() {
  const auto trains = [&](const std::string& name) {
    return std::ranges::any_of(tensors_.decisions, [&](const ParameterDecision& decision) {
      return decision.trainable && decision.name.raw() == name;
    });
  };
  for (const auto& [value, parameter] : context_.untraced.parted) {
    // A product's weight without a name is told of with its name, a tied table's copy with the table.
    if (value == context_.untraced.folded_weight || (is_anonymous(value) && trains(value))) continue;
    return add(severe(), ModelText(value),
               text("the exporter's optimiser has computed this beforehand from ", quoted(ModelText(parameter)),
                    ", which trains apart from it"),
               text(kExportRecipe, "; --accept trains the file as it is"));
  }
}

/// Those that no node of an optimised file takes, where ties do not explain them.
void Reporter::report_untraced() {
  const UntracedParameters& untraced = context_.untraced;
  const size_t named = untraced.names.size(), count = untraced.unexplained;
  // Where a file is refused since norms were folded away, these explain what else went with them.
  const bool is_told = count > 0 && !(has_folded_norms_ && context_.refuses_losses);
  if (!untraced.folded_weight.empty() && !(is_told && names_all(untraced, untraced.folded_from)))
    add(severe(), ModelText(untraced.folded_weight),
        text("a product multiplies by this, which the exporter's optimiser has computed beforehand",
             from_parameters(untraced.folded_from),
             ": the parameters that it is computed from would train apart from it"),
        text(kExportRecipe, "; --accept trains the file as it is"));
  if (!is_told) return;
  std::string message =
      named == 1 ? "this parameter of the module is taken by no node of the file"
                 : text(named, " parameters of the module, this one first, are taken by no node of the file");
  if (named > count) message += text(", and no more than ", named - count, " of them may be tied to others");
  message += untraced.evidence.empty()
                 ? ": no output needs them, or the exporter's optimiser has folded them or merged their layers"
                 : text(": ", untraced.evidence);
  const std::string name = quoted(ModelText(untraced.names.front()));
  const std::string otherwise = untraced.evidence.empty() ? ""
                                : untraced.is_left_out    ? text("; where the module does not use or train ", name,
                                                                 ", --freeze ", name, " takes the file as it is")
                                                          : "; --accept trains the file without them";
  add(untraced.evidence.empty() ? Severity::kWarning : severe(), ModelText(untraced.names.front()), std::move(message),
      text(kExportRecipe, otherwise));
}

/// One warning says it of all: the layers of a model are built alike.
void Reporter::report_doubtful() {
  const std::vector<DoubtfulLayer>& doubtful = context_.untraced.doubtful;
  if (doubtful.empty()) return;
  const DoubtfulLayer& first = doubtful.front();
  const std::string others = doubtful.size() == 1 ? "" : text(", and ", doubtful.size() - 1, " more");
  add(Severity::kWarning, ModelText(first.value),
      text("the exporter's optimiser has merged this layer", others, " with ", quoted(ModelText(first.merged_with)),
           ": it is taken for the same module, applied again, but may be ",
           first.other_module.empty()
               ? "one without weights"
               : text(quoted(ModelText(first.other_module)), ", which began with the same numbers")),
      "nothing if the module applies one layer to this input several times; else another model trains: export with "
      "graphpipe.export, or with optimize=False");
}

/// Those that rules tie are one tensor to the user as well.
void Reporter::report_merged() {
  if (context_.from_torch && !context_.copies.empty())
    add(severe(), ModelText(context_.copies.front()),
        text(context_.copies.size(), context_.copies.size() == 1 ? " tensor is" : " tensors, this one first, are",
             " the transposed weights of several products, which had equal values: the file trains them as one, "
             "whether the module ties them or not"),
        "export with dynamo=True and optimize=False, or with do_constant_folding=False; --accept trains them as one");
  std::vector<std::string_view> merged;
  for (const std::string& name : context_.merged)
    if (is_missing(name)) merged.push_back(name);
  if (merged.empty()) return;
  add(severe(), ModelText(std::string(merged.front())),
      merged.size() == 1
          ? "this parameter of the module trains as another's tensor or not at all: the exporter's optimiser has "
            "merged it with one that began with equal values, or has removed it since it began as zeros"
          : text(merged.size(),
                 " parameters of the module, this one first, train as another's tensor or not at all: the exporter's "
                 "optimiser has merged those that began with equal values, and removed those that began as zeros"),
      text(kExportRecipe, "; --accept trains the file as it is"));
}

/// An optimiser that folds the weight and the bias of a normalisation into constants leaves two of them, one behind the
/// other, and two names that have no tensor. Anything less may have other reasons: an unused layer, and numbers of the
/// code.
void Reporter::report_folded(size_t unexplained) {
  if (unexplained == 0 || tensors_.folded.empty()) return;
  const bool is_sure = lacks_pair() && scales_and_shifts();
  const size_t count = tensors_.folded.size();
  add(is_sure ? severe() : Severity::kWarning, graph_.param(tensors_.folded.front()).name,
      text(count, count == 1 ? " tensor" : " tensors, this one first,",
           " without a name of the module scale or shift values and do not train, and ", unexplained,
           " of the module's parameters have no tensor: the exporter ", is_sure ? "has" : "may have",
           " folded weights and biases of normalisations into constants"),
      text(kExportRecipe, is_sure ? "; --accept trains the file without them" : ""));
}

bool Reporter::lacks_pair() const {
  constexpr std::string_view kWeight = ".weight";
  return std::ranges::any_of(context_.signature.is_parameter, [&](const auto& listed) {
    const auto& [name, is_parameter] = listed;
    if (!is_parameter || !name.ends_with(kWeight) || !is_missing(name)) return false;
    const std::string bias = name.substr(0, name.size() - kWeight.size()) + ".bias";
    return context_.signature.is_parameter.contains(bias) && is_missing(bias);
  });
}

/// Whether the product with one of the folded tensors is added to another.
bool Reporter::scales_and_shifts() const {
  std::set<ir::ValueId> folded;
  for (const ir::ParamId id : tensors_.folded) folded.insert(graph_.param(id).value);
  const auto reads_folded = [&](const ir::Node& node) {
    return std::ranges::any_of(node.inputs, [&](ir::ValueId value) { return folded.contains(value); });
  };
  std::set<ir::ValueId> scaled;
  const auto is_scaled = [&](ir::ValueId value) { return scaled.contains(value); };
  for (const ir::NodeId id : graph_.node_ids()) {
    const ir::Node& node = graph_.node(id);
    if (!reads_folded(node)) continue;
    if (node.op == "Mul") scaled.insert(node.outputs[0]);
    if (node.op == "Add" && std::ranges::any_of(node.inputs, is_scaled)) return true;
  }
  return false;
}

/// The optimiser transposes the weights of products in the file. Where one is also an embedding's table, two tensors
/// come of it, which the file would train apart.
void Reporter::report_parted() {
  const WeightFiles files{context_.model_path, context_.trusted_root};
  const auto sample_of = [&](const ir::Param& param, bool is_turned) {
    return sample_of_matrix(graph_.value(param.value).type, param.data, is_turned, files);
  };
  std::unordered_map<std::string, const ir::Param*> tables;
  for (const ParameterDecision& decision : tensors_.decisions) {
    const ir::Param& table = graph_.param(decision.param);
    if (!decision.trainable || decision.role != ParameterRole::kEmbedding || is_anonymous(table.name.raw())) continue;
    if (std::string sample = sample_of(table, false); !sample.empty()) tables.emplace(std::move(sample), &table);
  }
  for (const ParameterDecision& decision : tensors_.decisions) {
    const ir::Param& turned = graph_.param(decision.param);
    if (tables.empty() || !decision.trainable || !is_anonymous(turned.name.raw())) continue;
    const auto found = tables.find(sample_of(turned, true));
    if (found != tables.end())
      add(severe(), turned.name,
          text("holds the transposed values of ", quoted(found->second->name),
               ": the module ties them, and the optimised file would train them apart"),
          text(kExportRecipe, "; --accept trains them apart"));
  }
}

/// Files of torch.onnx.export do not say that requires_grad is False, as it is of most of these.
void Reporter::report_waves() {
  if (!tensors_.waves.empty())
    add(Severity::kWarning, tensors_.waves.front(),
        text("a parameter that begins as a table of sines and cosines trains",
             tensors_.waves.size() == 1 ? "" : text(", as do ", tensors_.waves.size() - 1, " more"),
             "; modules mostly keep them fixed (requires_grad = False), which the file does not say"),
        "export with graphpipe.export, which says so, or write 'NAME freeze' (or 'NAME train') in a file for "
        "--parameters");
}

/// Without a signature parameters cannot be distinguished from buffers but by their uses and names.
void Reporter::report_uncertain() {
  const auto tell = [&](Severity severity, const std::vector<ModelText>& names, std::string_view what,
                        const char* hint) {
    if (!names.empty()) add(severity, {}, text(what, ": ", examples_of(names)), hint);
  };
  constexpr const char* kIfParameter =
      "where one is a parameter of the module, write 'NAME train' in a file for --parameters, or export with "
      "dynamo=True, whose files say what is one";
  const bool one = tensors_.unread.size() == 1;
  tell(Severity::kNote, tensors_.unread,
       text(tensors_.unread.size(), " named tensor", one ? " is" : "s are",
            " read as no weight of a layer, and not trained"),
       kIfParameter);
  tell(Severity::kWarning, tensors_.numbers,
       "looked up, but tables of single numbers, which are taken for buffers and do not train", kIfParameter);
  tell(
      Severity::kNote, tensors_.fixed,
      "of normalisations whose statistics are added and multiplied like any tensor: taken for buffers, and not trained",
      kIfParameter);
  if (context_.signature.is_parameter.empty())
    tell(Severity::kWarning, tensors_.waves,
         "tables of sines and cosines, which are taken for buffers and do not train", kIfParameter);
  tell(Severity::kNote, tensors_.guessed, "trained because of how they are read",
       "where one is a buffer of the module, freeze it (--freeze NAME), or export with dynamo=True, whose files say "
       "what is one");
}

}  // namespace

bool is_anonymous(const std::string& name) {
  if (name.find("onnx::") != std::string::npos) return true;
  return name.starts_with("val_") && name.find_first_not_of("0123456789", 4) == std::string::npos;
}

void report_losses(const ir::Graph& graph, const ParameterContext& context, const DecidedTensors& tensors,
                   Diagnostics& notes) {
  Reporter(graph, context, tensors, notes).report();
}

}  // namespace graphpipe::frontend
