// The forwards of layers that take more than one tensor.
#include "python/door/modules.h"

namespace door {

namespace {

nb::object lstm_forward(rw::LSTM& m, Given x, nb::handle state) {
  rw::LSTM::State initial;
  if (!state.is_none())
    initial = {*nb::cast<rw::Tensor*>(state[0]), *nb::cast<rw::Tensor*>(state[1])};
  std::optional<rw::LSTM::Result> r;
  {
    const nb::gil_scoped_release release;
    r = m.forward(x.tensor, initial);
  }
  return nb::make_tuple(r->y, nb::make_tuple(r->state.h, r->state.c));
}

nb::object gru_forward(rw::GRU& m, Given x, Maybe state) {
  std::optional<rw::GRU::Result> r;
  {
    const nb::gil_scoped_release release;
    r = m.forward(x.tensor, state.tensor);
  }
  return nb::make_tuple(r->y, r->h);
}

// forward(x, causal, mask, lengths) of a stack that attends to itself.
template <class C>
void extend_encoder(C& c) {
  using M = typename C::Type;
  c.def(
      "forward",
      [](M& m, Given x, bool causal, Maybe mask, Maybe lengths) {
        return m.forward(std::move(x.tensor), attend(causal, std::move(mask), std::move(lengths)));
      },
      "x"_a, "causal"_a = false, "mask"_a.none() = nb::none(), "lengths"_a.none() = nb::none(),
      Release(),
      "[N, S, d_model]; mask is f32 and added to the scores, lengths i32 [N] say where padding "
      "begins.");
}

// forward(tgt, memory, ...) of one that attends to another sequence, too.
template <class C>
void extend_decoder(C& c) {
  using M = typename C::Type;
  c.def(
      "forward",
      [](M& m, Given tgt, Given memory, bool causal, Maybe mask, Maybe lengths, Maybe memory_mask,
         Maybe memory_lengths) {
        return m.forward(std::move(tgt.tensor), std::move(memory.tensor),
                         attend(causal, std::move(mask), std::move(lengths)),
                         attend(false, std::move(memory_mask), std::move(memory_lengths)));
      },
      "tgt"_a, "memory"_a, "causal"_a = false, "mask"_a.none() = nb::none(),
      "lengths"_a.none() = nb::none(), "memory_mask"_a.none() = nb::none(),
      "memory_lengths"_a.none() = nb::none(), Release());
}

template <class C>
void extend_bert(C& c) {
  using M = typename C::Type;
  c.def(
      "forward",
      [](M& m, Given x, Maybe mask, Maybe lengths) {
        return m.forward(std::move(x.tensor), mask.tensor, lengths.tensor);
      },
      "x"_a, "mask"_a.none() = nb::none(), "lengths"_a.none() = nb::none(), Release());
}

}  // namespace

void extend(nb::class_<rw::LSTM, rw::Module>& c) {
  c.def("forward", &lstm_forward, "x"_a, "state"_a.none() = nb::none(),
        "Returns y and the state (h, c) after the last step.");
}
void extend(nb::class_<rw::GRU, rw::Module>& c) {
  c.def("forward", &gru_forward, "x"_a, "state"_a.none() = nb::none(),
        "Returns y and the state h after the last step.");
}
void extend(nb::class_<rw::MultiheadAttention, rw::Module>& c) {
  c.def(
      "forward",
      [](rw::MultiheadAttention& m, Given query, Maybe key, Maybe value, bool causal, Maybe mask,
         Maybe lengths) {
        const rw::Attend how = attend(causal, std::move(mask), std::move(lengths));
        if (!key.tensor.defined()) return m.forward(std::move(query.tensor), how);
        rw::Tensor values = value.tensor.defined() ? std::move(value.tensor) : key.tensor;
        return m.forward(std::move(query.tensor), std::move(key.tensor), std::move(values), how);
      },
      "query"_a, "key"_a.none() = nb::none(), "value"_a.none() = nb::none(), "causal"_a = false,
      "mask"_a.none() = nb::none(), "lengths"_a.none() = nb::none(), Release(),
      "Without a key: self-attention. [N, S, embed_dim]");
}
void extend(nb::class_<rw::TransformerEncoderLayer, rw::Module>& c) {
  extend_encoder(c);
}
void extend(nb::class_<rw::TransformerEncoder, rw::Module>& c) {
  extend_encoder(c);
}
void extend(nb::class_<rw::TransformerDecoderLayer, rw::Module>& c) {
  extend_decoder(c);
}
void extend(nb::class_<rw::TransformerDecoder, rw::Module>& c) {
  extend_decoder(c);
}
void extend(nb::class_<rw::Transformer, rw::Module>& c) {
  c.def(
      "forward",
      [](rw::Transformer& m, Given src, Given tgt, bool causal, Maybe src_lengths,
         Maybe tgt_lengths) {
        return m.forward(
            std::move(src.tensor), std::move(tgt.tensor), attend(false, {}, {src_lengths.tensor}),
            attend(causal, {}, std::move(tgt_lengths)), attend(false, {}, {src_lengths.tensor}));
      },
      "src"_a, "tgt"_a, "causal"_a = true, "src_lengths"_a.none() = nb::none(),
      "tgt_lengths"_a.none() = nb::none(), Release());
}
void extend(nb::class_<rw::BertAttention, rw::Module>& c) {
  extend_bert(c);
}
void extend(nb::class_<rw::BertLayer, rw::Module>& c) {
  extend_bert(c);
}

}  // namespace door
