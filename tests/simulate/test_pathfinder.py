"""Pathfinder: contours found again by a flood fill that knows nothing of how they grew; statistics; no short cut."""

import numpy as np
import pytest
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from elm_lib.simulate.symbols import pathfinder
from elm_lib.simulate.symbols.pathfinder import RECIPES


def components(scene, recipe, scale):
    """Paddles drawn on a finer grid and thickened to just over half the gap between neighbours: the connected
    regions."""
    fine = np.ones((recipe.size * scale,) * 2, bool)
    for ax, ay, bx, by in scene.paddles:
        t = np.linspace(0, 1, 16 * scale)
        fine[((ay + t * (by - ay)) * scale).astype(int), ((ax + t * (bx - ax)) * scale).astype(int)] = False
    thick = ndimage.distance_transform_edt(fine) <= (scene.margin + recipe.paddle_thickness / 4) * scale
    return ndimage.label(thick, structure=np.ones((3, 3)))


@pytest.mark.parametrize(("size", "scale", "n"), [(32, 16, 25), (128, 4, 12)])
def test_the_discs_lie_on_one_path_exactly_if_the_label_is_1(size, scale, n):
    recipe = RECIPES[size]
    for index in range(n):
        scene = pathfinder.draw_scene(7, index, recipe)
        region, count = components(scene, recipe, scale)
        at = [region[int(y * scale), int(x * scale)] for x, y in scene.markers]
        assert (at[0] == at[1]) == bool(scene.label)
        assert min(at) > 0
        # each contour is one region, of all its paddles, and of no other's
        middle = (scene.paddles[:, :2] + scene.paddles[:, 2:]) / 2
        of_paddle = region[(middle[:, 1] * scale).astype(int), (middle[:, 0] * scale).astype(int)]
        assert count == len(np.unique(scene.contour))
        assert len(set(zip(of_paddle, scene.contour))) == count
        lengths = np.bincount(scene.contour)
        assert list(lengths[:2]) == [recipe.contour_length] * 2
        assert set(lengths[2:]) <= {0, recipe.distractor_length}
        # a disc lies at the free end of a path: the start of one, near the other's start, or an end
        ends = scene.paddles[: 2 * recipe.contour_length]
        assert np.isclose(np.hypot(*(ends[0, :2] - ends[1, :2])), recipe.seed_distance)
        assert any(np.array_equal(scene.markers[0], tail) for tail in ends[:2, :2])
        assert any(np.array_equal(scene.markers[1], head) for head in ends[-2:, 2:])


def test_turns_follow_the_published_law():
    """cos^2 of the turn on average: broad at continuity 1, at 1.8 never above 50 degrees."""
    for size, most, low, high in ((32, 90, 25, 45), (128, 50, 12, 25)):
        turns = []
        for index in range(10):
            scene = pathfinder.draw_scene(2, index, RECIPES[size])
            for which in np.unique(scene.contour):
                step = np.diff(scene.paddles[scene.contour == which].reshape(-1, 2, 2), axis=1)[:, 0]
                turns.append(np.diff(np.unwrap(np.arctan2(step[:, 1], step[:, 0]))))
        degrees = np.degrees(np.abs(np.concatenate(turns)))
        assert degrees.max() <= most + 1e-6
        assert low < degrees.mean() < high


def test_statistics_are_those_of_the_published_sets():
    recipe = RECIPES[32]
    scenes = [pathfinder.draw_scene(1, index, recipe) for index in range(300)]
    images = np.stack([pathfinder.render(scene, recipe) for scene in scenes])
    bare = np.stack([pathfinder.render(scene, recipe, markers=False) for scene in scenes])
    assert abs(bare.mean() / 255 - 0.07) < 0.007
    assert (images.max((1, 2)) == 255).all()
    assert abs(np.mean([scene.label for scene in scenes]) - 0.5) < 0.1  # by chance, as published
    short = [len(np.unique(scene.contour)) - 2 for scene in scenes]
    assert max(short) <= recipe.distractors
    assert np.mean(short) > 2.5
    # thin bars are antialiased: many grey levels
    assert len(np.unique(images)) > 30


def test_an_image_is_its_seed_and_index_and_labels_alternate():
    images, labels = pathfinder.generate(0, 6, seed=4)
    again, _ = pathfinder.generate(4, 2, seed=4)
    assert np.array_equal(images[4:], again)
    assert list(labels) == [0, 1, 0, 1, 0, 1]
    assert not np.array_equal(images[0], pathfinder.generate(0, 1, seed=5)[0][0])
    assert len({image.tobytes() for image in images}) == 6
    assert images.dtype == np.uint8
    assert pathfinder.generate(0, 1, seed=4, size=128)[0].shape == (1, 128, 128)
    with pytest.raises(ValueError, match="size = 64"):
        pathfinder.generate(0, 1, seed=4, size=64)


def test_no_short_cut_through_pixel_counts():
    """A linear model on histogram, projections and disc positions as they are stays at chance."""
    images, labels = pathfinder.generate(0, 1200, seed=9)
    x = images.reshape(len(images), -1).astype(float)
    features = np.concatenate(
        [
            np.stack([np.histogram(row, 16, (0, 255))[0] for row in x]),
            images.mean(1),
            images.mean(2),
            np.stack([x.mean(1), x.std(1), (x > 0).mean(1)], 1),
        ],
        axis=1,
    )
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
    assert abs(cross_val_score(model, features, labels, cv=5).mean() - 0.5) < 0.05  # 3.5 standard errors


def test_a_flood_fill_over_the_picture_alone_tells_the_label():
    """At 128 pixels gaps within a path are plainly narrower than those between paths; discs aside, which may touch
    two."""
    labels, gaps = [], []
    for index in range(40):
        scene = pathfinder.draw_scene(21, index, RECIPES[128], index % 2)
        picture = pathfinder.render(scene, RECIPES[128], markers=False)
        far = ndimage.distance_transform_edt(picture < 77)
        at = [(int(y), int(x)) for x, y in scene.markers]
        for gap in np.arange(0.5, 6, 0.25):
            region, _ = ndimage.label(far <= gap, np.ones((3, 3)))
            if region[at[0]] == region[at[1]] > 0:
                break
        labels.append(scene.label)
        gaps.append(gap)
    assert roc_auc_score(labels, -np.array(gaps)) > 0.85
