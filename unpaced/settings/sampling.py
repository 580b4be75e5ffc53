"""What a request gets that asks for nothing."""

from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator

from engine_ext import RANDOM_SEED, SAMPLERS, SamplingParams
from unpaced.settings.options.escapes import read_escapes
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup
from unpaced.settings.options.pairs import parse_bias
from unpaced.values.samplers import chain_of


class SamplingSettings(OptionGroup):
    """What a request gets that asks for nothing."""

    group: ClassVar[str] = "Sampling defaults"

    escape: Annotated[
        bool,
        Option(
            ("-e", "--escape"),
            r"read \n, \t, \xHH and the like in -r and --dry-sequence-breaker (on by default)",
            off_flags=("--no-escape",),
        ),
    ] = True
    seed: Annotated[
        int,
        Field(ge=-1, le=RANDOM_SEED),
        Option(
            ("-s", "--seed"), "seed of the draws; -1: another one for every request", metavar="N"
        ),
    ] = -1
    samplers: Annotated[
        str, Option(("--samplers",), "chain, by names separated by ';'", metavar="NAMES")
    ] = ";".join(SAMPLERS)
    sampler_seq: Annotated[
        str,
        Option(
            ("--sampler-seq", "--sampling-seq"),
            "chain, by letters: edskypmxt; wins over --samplers",
            metavar="LETTERS",
        ),
    ] = ""
    temp: Annotated[
        float,
        Field(ge=0),
        Option(
            ("--temp", "--temperature"), "temperature; 0: greedy", env="TEMPERATURE", metavar="T"
        ),
    ] = 0.8
    dynatemp_range: Annotated[
        float,
        Option(
            ("--dynatemp-range",),
            "how far the entropy of a row moves the temperature, up or down; 0: off",
            metavar="R",
        ),
    ] = 0.0
    dynatemp_exp: Annotated[
        float, Option(("--dynatemp-exp",), "exponent of the dynamic temperature", metavar="X")
    ] = 1.0
    top_k: Annotated[
        int,
        Field(ge=0),
        Option(("--top-k",), "keep the N likeliest tokens; 0: off", env="TOP_K", metavar="N"),
    ] = 40
    top_p: Annotated[
        float,
        Field(ge=0, le=1),
        Option(
            ("--top-p",),
            "keep the likeliest tokens whose probabilities add up to P; 1: off",
            env="TOP_P",
            metavar="P",
        ),
    ] = 0.95
    min_p: Annotated[
        float,
        Field(ge=0, le=1),
        Option(
            ("--min-p",),
            "drop tokens less likely than P times the likeliest; 0: off",
            env="MIN_P",
            metavar="P",
        ),
    ] = 0.05
    top_n_sigma: Annotated[
        float,
        Option(
            ("--top-nsigma", "--top-n-sigma"),
            "keep logits within N standard deviations of the best; below 0: off",
            metavar="N",
        ),
    ] = -1.0
    typical: Annotated[
        float,
        Option(
            ("--typical", "--typical-p"),
            "keep the most typical tokens whose probabilities add up to P; 1: off",
            metavar="P",
        ),
    ] = 1.0
    xtc_probability: Annotated[
        float,
        Field(ge=0, le=1),
        Option(
            ("--xtc-probability",),
            "chance that XTC drops the likeliest tokens; 0: off",
            metavar="P",
        ),
    ] = 0.0
    xtc_threshold: Annotated[
        float,
        Field(ge=0, le=1),
        Option(
            ("--xtc-threshold",),
            "XTC drops all tokens this likely but the least likely of them; above 0.5: off",
            metavar="P",
        ),
    ] = 0.1
    repeat_last_n: Annotated[
        int, Field(ge=0), Option(("--repeat-last-n",), "tokens that penalties look at", metavar="N")
    ] = 64
    repeat_penalty: Annotated[
        float,
        Field(gt=0),
        Option(
            ("--repeat-penalty",),
            "weakens tokens that were there, by a factor; 1: off",
            env="REPEAT_PENALTY",
            metavar="X",
        ),
    ] = 1.0
    presence_penalty: Annotated[
        float,
        Option(
            ("--presence-penalty",),
            "taken off the logits of tokens that were there; 0: off",
            env="PRESENCE_PENALTY",
            metavar="X",
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        Option(
            ("--frequency-penalty",),
            "taken off them for each time that they were there; 0: off",
            env="FREQUENCY_PENALTY",
            metavar="X",
        ),
    ] = 0.0
    dry_multiplier: Annotated[
        float,
        Option(
            ("--dry-multiplier",),
            "strength of DRY, which penalises repeats of several tokens; 0: off",
            metavar="X",
        ),
    ] = 0.0
    dry_base: Annotated[
        float, Field(ge=1), Option(("--dry-base",), "base of DRY's penalty", metavar="X")
    ] = 1.75
    dry_allowed_length: Annotated[
        int,
        Field(ge=0),
        Option(("--dry-allowed-length",), "longest repeat without penalty", metavar="N"),
    ] = 2
    dry_penalty_last_n: Annotated[
        int,
        Field(ge=-1),
        Option(("--dry-penalty-last-n",), "tokens DRY looks at; -1: all", metavar="N"),
    ] = 64
    dry_sequence_breaker: Annotated[
        tuple[str, ...],
        Option(
            ("--dry-sequence-breaker",),
            "ends a repeat; replaces the defaults; may be given several times; none: nothing does",
            metavar="TEXT",
            many=True,
        ),
    ] = ("\n", ":", '"', "*")
    mirostat: Annotated[
        int,
        Field(ge=0, le=2),
        Option(
            ("--mirostat",),
            "version of mirostat, 1 or 2; it replaces all of the chain but temperature; 0: off",
            metavar="N",
        ),
    ] = 0
    mirostat_lr: Annotated[
        float, Option(("--mirostat-lr",), "mirostat's learning rate, eta", metavar="X")
    ] = 0.1
    mirostat_ent: Annotated[
        float, Option(("--mirostat-ent",), "mirostat's target entropy, tau", metavar="X")
    ] = 5.0
    adaptive_target: Annotated[
        float,
        Field(le=1),
        Option(
            ("--adaptive-target",),
            "probability that adaptive_p keeps to, where the chain names it; below 0: off",
            metavar="P",
        ),
    ] = -1.0
    adaptive_decay: Annotated[
        float,
        Field(ge=0, le=0.99),
        Option(("--adaptive-decay",), "how slowly adaptive_p forgets", metavar="X"),
    ] = 0.9
    logit_bias: Annotated[
        tuple[str, ...],
        Option(
            ("-l", "--logit-bias"),
            "ID+BIAS or ID-BIAS, such as 15043+1; may be given several times",
            metavar="BIAS",
            many=True,
        ),
    ] = ()
    ignore_eos: Annotated[
        bool, Option(("--ignore-eos",), "never choose an end-of-generation token")
    ] = False
    reverse_prompt: Annotated[
        tuple[str, ...],
        Option(
            ("-r", "--reverse-prompt"),
            "stop string where a request names none; may be given several times",
            metavar="TEXT",
            many=True,
        ),
    ] = ()
    special: Annotated[bool, Option(("-sp", "--special"), "show control tokens in the text")] = (
        False
    )

    @field_validator("reverse_prompt", "dry_sequence_breaker")
    @classmethod
    def _read_escapes(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not info.data.get("escape"):
            return texts
        return tuple(read_escapes(text) for text in texts)

    @field_validator("dry_sequence_breaker")
    @classmethod
    def _read_none(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        # An empty breaker is one that no text contains.
        return ("",) if texts == ("none",) else texts

    @field_validator("logit_bias")
    @classmethod
    def _check_biases(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            parse_bias(entry)
        return entries

    def sampling_defaults(self) -> SamplingParams:
        """What a request gets that asks for nothing. Raises: ValueError."""
        names = [name for name in self.samplers.split(";") if name]
        field = "sampler_seq" if self.sampler_seq else "samplers"
        try:
            chain = chain_of(self.sampler_seq or names)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from None
        return SamplingParams(
            seed=self.seed & RANDOM_SEED,
            temperature=self.temp,
            dynatemp_range=self.dynatemp_range,
            dynatemp_exponent=self.dynatemp_exp,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical,
            top_n_sigma=self.top_n_sigma,
            xtc_probability=self.xtc_probability,
            xtc_threshold=self.xtc_threshold,
            repeat_last_n=self.repeat_last_n,
            repeat_penalty=self.repeat_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            dry_multiplier=self.dry_multiplier,
            dry_base=self.dry_base,
            dry_allowed_length=self.dry_allowed_length,
            dry_penalty_last_n=self.dry_penalty_last_n,
            dry_sequence_breakers=self.dry_sequence_breaker,
            mirostat=self.mirostat,
            mirostat_tau=self.mirostat_ent,
            mirostat_eta=self.mirostat_lr,
            adaptive_target=self.adaptive_target,
            adaptive_decay=self.adaptive_decay,
            samplers=chain,
            logit_bias=tuple(parse_bias(entry) for entry in self.logit_bias),
            ignore_eos=self.ignore_eos,
        )
