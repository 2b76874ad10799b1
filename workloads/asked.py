"""The lengths and pictures of one request before its text is written: from a mix, from a client, or from a trace."""

from collections.abc import Callable
from dataclasses import dataclass

from toolkit.core.classify import length_of
from toolkit.core.errors import UsageFault
from toolkit.core.plan import ImageRecipe
from toolkit.core.sample import WorkloadClass
from toolkit.core.seed import Seeds
from workloads.pictures import draw_recipe, image_tokens
from workloads.population import Asking, Population, class_of
from workloads.profile import ClassMix
from workloads.texts import LONGEST_SENTENCE_TOKENS, class_tokens
from workloads.traces.record import TraceRecord


@dataclass(frozen=True, slots=True)
class Outline:
    """What is asked, but for the words. blocks: ids of the prompt's blocks, where a trace names them."""

    workload_class: WorkloadClass
    text_tokens: int
    max_tokens: int
    images: tuple[ImageRecipe, ...]
    blocks: tuple[int, ...] = ()


def from_mix(name: WorkloadClass, mix: ClassMix, seeds: Seeds, stream: str) -> Outline:
    """Each field from the class's own distribution."""
    sizes = seeds.rng(f"{stream}/sizes")
    count, text, answer = (numbers.draw(sizes) for numbers in (mix.images, mix.text_tokens, mix.max_tokens))
    images = tuple(draw_recipe(mix, name, seeds, f"{stream}/image/{n}") for n in range(count))
    return Outline(name, text, max(1, answer), images)


def from_clients(
    name: WorkloadClass, mix: ClassMix, population: Population, seeds: Seeds, stream: str
) -> Outline:
    """All fields as one client asks them. Raises UsageFault when no client asks that class."""
    try:
        asking = population.draw_of(name, seeds.rng(f"{stream}/sizes"), _firmly_in_its_class)
    except ValueError as error:
        raise UsageFault(f"classes.{name.value}: {error}.") from error
    if asking.capped and not (mix.sizes or mix.folder):
        raise UsageFault(
            f"classes.{name.value}: the clients do not tell the size of large photos: give sizes or a folder."
        )
    images = tuple(
        draw_recipe(mix, name, seeds, f"{stream}/image/{n}", None if asking.capped else tokens)
        for n, tokens in enumerate(asking.image_tokens)
    )
    return Outline(name, asking.text_tokens, max(1, asking.output_tokens), images)


def from_record(
    record: TraceRecord, mix_of: Callable[[WorkloadClass], ClassMix], seeds: Seeds, stream: str
) -> Outline:
    """As the trace has it; the class is the rule's, and the pictures are of that class's sizes.

    A trace with images counts their tokens in the prompt's and tells no sizes, so the text is what the record has
    beyond one 28 x 28 patch per image token of pictures of the class's sizes, at least an instruction.
    """
    name = (WorkloadClass.TEXT_ONLY, WorkloadClass.IMAGE_SHORT, WorkloadClass.MULTI_IMAGE_LONG)[
        min(record.images, 2)
    ]
    mix = mix_of(name)
    if record.images and not (mix.sizes or mix.folder):
        raise UsageFault(f"classes.{name.value}: the trace tells no sizes of images: give sizes or a folder.")
    images = tuple(draw_recipe(mix, name, seeds, f"{stream}/image/{n}") for n in range(record.images))
    text = max(1, record.text_tokens - sum(image_tokens(image.width, image.height) for image in images))
    if record.images == 1 and length_of(class_tokens(text)) == "long":
        name = WorkloadClass.MULTI_IMAGE_LONG
    return Outline(name, text, max(1, record.output_tokens), images, record.blocks)


def _firmly_in_its_class(asking: Asking) -> bool:
    # A text comes out up to a sentence shorter than asked: what would change class with that is drawn again.
    shorter = Asking(
        asking.client,
        max(0, asking.text_tokens - LONGEST_SENTENCE_TOKENS),
        asking.output_tokens,
        asking.image_tokens,
    )
    return class_of(asking) is class_of(shorter)
